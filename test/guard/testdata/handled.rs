// A crash of Rust's, with a pointer that `spoil` wrote; as many threads as it is told to make have come and gone before.
use std::sync::{Arc, Mutex};

struct Object {
    pointer: *mut i64,
}

#[inline(never)]
fn spoil(o: &mut Object) {
    o.pointer = 0x1230 as *mut i64;
}

#[inline(never)]
fn fault(o: &Object) {
    unsafe { *o.pointer = 7 };
}

fn main() {
    let threads: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let total = Arc::new(Mutex::new(0u64));
    let mut object = Box::new(Object { pointer: Box::into_raw(Box::new(1)) });
    let all: Vec<_> = (0..threads)
        .map(|_| {
            let total = total.clone();
            std::thread::spawn(move || (0..20000u64).for_each(|i| *total.lock().unwrap() += i))
        })
        .collect();
    all.into_iter().for_each(|t| t.join().unwrap());
    println!("{}", total.lock().unwrap());
    spoil(&mut object);
    fault(&object);
}

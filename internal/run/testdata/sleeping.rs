// A Mutex that its own thread takes twice.
use std::sync::{Arc, Mutex};

fn main() {
    let m = Arc::new(Mutex::new(0));
    let n = m.clone();
    std::thread::spawn(move || takes(&n)).join().unwrap();
}

#[inline(never)]
fn takes(m: &Mutex<i32>) {
    let first = m.lock().unwrap();
    let second = m.lock().unwrap();
    println!("{} {}", first, second);
}

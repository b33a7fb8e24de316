// Rust's own locks, conditions, channels, once cells and scoped threads, used rightly. They are futexes; joins and thread locals are not.
// ripstop: verdict none
use std::cell::Cell;
use std::sync::{mpsc, Arc, Condvar, Mutex, OnceLock, RwLock};
use std::thread;

static NAME: OnceLock<String> = OnceLock::new();
thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });

fn main() {
    let total = Arc::new(Mutex::new(0u64));
    let table = RwLock::new(vec![1u64; 10]);
    let (tx, rx) = mpsc::channel();
    thread::scope(|s| {
        for i in 0..4u64 {
            let (tx, total, table) = (tx.clone(), total.clone(), &table);
            s.spawn(move || {
                CALLS.with(|c| c.set(c.get() + 1));
                NAME.get_or_init(|| "rust".to_string());
                for k in 0..50 {
                    *total.lock().unwrap() += table.read().unwrap()[k % 10];
                }
                table.write().unwrap()[i as usize] = 1;
                tx.send(i).unwrap();
            });
        }
    });
    drop(tx);
    let gate = (Mutex::new(false), Condvar::new());
    thread::scope(|s| {
        s.spawn(|| {
            *gate.0.lock().unwrap() = true;
            gate.1.notify_one();
        });
        let mut open = gate.0.lock().unwrap();
        while !*open {
            open = gate.1.wait(open).unwrap();
        }
    });
    println!("{} {} {}", NAME.get().unwrap(), *total.lock().unwrap(), rx.iter().sum::<u64>());
}

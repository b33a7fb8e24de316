// What Rust's standard library orders threads by, much of it atomics that are plain movs, and a race.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;

static ONCE: OnceLock<Vec<u32>> = OnceLock::new();
static mut COUNTED: u64 = 0;

fn channels() {
    let (tx, rx) = mpsc::channel::<Box<[u64; 16]>>();
    let (few, bounded) = mpsc::sync_channel::<Vec<u8>>(2);
    let senders: Vec<_> = (0..3u64)
        .map(|i| {
            let (tx, few) = (tx.clone(), few.clone());
            thread::spawn(move || {
                for k in 0..100 {
                    let mut b = Box::new([k; 16]);
                    b[3] = i;
                    tx.send(b).unwrap();
                    if k % 20 == 0 {
                        few.send(vec![i as u8; 64]).unwrap();
                    }
                }
            })
        })
        .collect();
    drop(tx);
    drop(few);
    let lengths = thread::spawn(move || bounded.iter().map(|v| v.len()).sum::<usize>());
    let sum: u64 = rx.iter().map(|b| b[3] + b[0]).sum();
    for s in senders {
        s.join().unwrap();
    }
    println!("{} {}", sum, lengths.join().unwrap());
}

fn locks() {
    let all = Arc::new((Mutex::new(0u64), RwLock::new(vec![1u64; 10]), Condvar::new(), Barrier::new(3), AtomicUsize::new(0)));
    let threads: Vec<_> = (0..3)
        .map(|i| {
            let all = all.clone();
            thread::spawn(move || {
                for k in 0..50u64 {
                    *all.0.lock().unwrap() += k;
                    if k % 10 == 0 {
                        all.1.write().unwrap()[i] += 1;
                    } else {
                        let _ = all.1.read().unwrap().iter().sum::<u64>();
                    }
                    all.4.fetch_add(1, Ordering::Relaxed);
                    ONCE.get_or_init(|| (0..50).collect());
                }
                all.3.wait();
                all.2.notify_all();
                format!("{}", i)
            })
        })
        .collect();
    let mut sum = all.0.lock().unwrap();
    while *sum < 3 * 1225 {
        sum = all.2.wait_timeout(sum, std::time::Duration::from_millis(10)).unwrap().0;
    }
    drop(sum);
    let names: Vec<String> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let mut out = vec![0u32; 100];
    thread::scope(|s| {
        for (i, c) in out.chunks_mut(25).enumerate() {
            s.spawn(move || c.fill(i as u32));
        }
    });
    println!("{:?} {} {}", names, all.4.load(Ordering::SeqCst), out.iter().sum::<u32>());
}

#[inline(never)]
fn count() {
    unsafe {
        let p = &raw mut COUNTED;
        *p += 1; // race-any counted
    }
}

fn main() {
    channels();
    locks();
    let both = Arc::new(Barrier::new(2));
    let threads = [both.clone(), both].map(|b| {
        thread::spawn(move || {
            b.wait();
            count()
        })
    });
    for t in threads {
        t.join().unwrap();
    }
}

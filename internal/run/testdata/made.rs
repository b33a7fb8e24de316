// Rust's mutexes and conditions, whose words and futexes the standard library has in line; `order` depends on the order. Its arguments: locks or conditions; how many rounds.
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

const THREADS: u64 = 6;

fn locks(rounds: u64) -> u64 {
    let shared = Arc::new(Mutex::new((0u64, vec![0u64; 64])));
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..rounds {
                    let mut s = shared.lock().unwrap();
                    let order = s.1[0].wrapping_mul(6364136223846793005).wrapping_add(me + 1);
                    s.1[0] = order;
                    s.1[(order % 63 + 1) as usize] = order;
                    s.0 += 1;
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    let taken = shared.lock().unwrap().0;
    taken
}

struct Queue {
    waiting: VecDeque<u64>,
    taken: u64,
    order: u64,
}

fn conditions(rounds: u64) -> u64 {
    let all = rounds * THREADS / 2;
    let shared = Arc::new((Mutex::new(Queue { waiting: VecDeque::new(), taken: 0, order: 0 }), Condvar::new(), Condvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (queue, more, less) = &*shared;
                if me % 2 == 0 {
                    for i in 0..rounds {
                        let mut q = queue.lock().unwrap();
                        while q.waiting.len() == 8 {
                            q = less.wait(q).unwrap();
                        }
                        q.waiting.push_back(i * THREADS + me);
                        drop(q);
                        more.notify_one();
                    }
                    return;
                }
                loop {
                    let mut q = queue.lock().unwrap();
                    while q.waiting.is_empty() && q.taken < all {
                        q = more.wait(q).unwrap();
                    }
                    if let Some(v) = q.waiting.pop_front() {
                        q.order = q.order.wrapping_mul(31).wrapping_add(v);
                        q.taken += 1;
                    }
                    let over = q.taken >= all;
                    drop(q);
                    less.notify_one();
                    if over {
                        more.notify_all();
                        return;
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    let taken = shared.0.lock().unwrap().taken;
    taken
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args[2].parse().unwrap();
    let taken = if args[1] == "locks" { locks(rounds) } else { conditions(rounds) };
    println!("{}: {} taken", args[1], taken);
    std::process::exit(5);
}

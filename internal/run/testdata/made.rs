// Rust's mutexes and conditions, whose words and futexes the standard library has in line; `order` depends on the order. Its arguments: locks, conditions or readers; how many rounds.
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, RwLock};
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

fn readers(rounds: u64) -> u64 {
    let shared = Arc::new(RwLock::new((0u64, 0u64)));
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut seen = 0u64;
                for i in 0..rounds {
                    if (i + me) % 4 == 0 {
                        let mut s = shared.write().unwrap();
                        s.0 += 1;
                        s.1 = s.1.wrapping_mul(6364136223846793005).wrapping_add(me + 1);
                    } else {
                        seen = seen.wrapping_mul(31).wrapping_add(shared.read().unwrap().1);
                    }
                }
                seen
            })
        })
        .collect();
    let seen: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let written = shared.read().unwrap().0;
    std::hint::black_box(seen);
    written
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args[2].parse().unwrap();
    let taken = match &args[1][..] {
        "locks" => locks(rounds),
        "readers" => readers(rounds),
        _ => conditions(rounds),
    };
    println!("{}: {} taken", args[1], taken);
    std::process::exit(5);
}

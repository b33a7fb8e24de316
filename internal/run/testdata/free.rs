// Threads that hand things on by std's channels (`unbounded`, `bounded`, `zero`), or meet at its Barrier (`barrier`), so many ROUNDS; what is in memory afterwards depends on the order. `spoils`: one of the pointers that are sent leads nowhere; whoever gets it crashes, and who sent it the order says alone.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, sync_channel, Receiver};
use std::sync::{Arc, Barrier};
use std::thread;

const SENDERS: u64 = 3;
static ORDER: AtomicU64 = AtomicU64::new(0);
static BLOCK: AtomicU64 = AtomicU64::new(1);

fn takes(rx: Receiver<u64>) -> u64 {
    let (mut n, mut order, mut last) = (0, 0u64, vec![0u64; 64]);
    while let Ok(x) = rx.recv() {
        order = order.wrapping_mul(31).wrapping_add(x);
        last[n as usize % 64] = x;
        n += 1;
    }
    ORDER.store(order ^ last[0], Relaxed);
    n
}

macro_rules! sends {
    ($made:expr, $rounds:expr, $item:expr, $takes:expr) => {{
        let (tx, rx) = $made;
        let all: Vec<_> = (0..SENDERS)
            .map(|me| {
                let tx = tx.clone();
                thread::spawn(move || (0..$rounds).for_each(|i| tx.send($item(me, i)).unwrap()))
            })
            .collect();
        drop(tx);
        println!("{}", $takes(rx));
        all.into_iter().for_each(|t| t.join().unwrap());
    }};
}

#[inline(never)]
fn spoils() -> u64 {
    0x7d0
}

// Not by fetch_add: a crash at what is in order itself is not executed again where the program has a handler (docs/decisions.md, 65 and 68).
#[inline(never)]
fn uses(at: u64) -> u64 {
    unsafe { (*(at as *const AtomicU64)).swap(1, Relaxed) }
}

fn meets(rounds: u64) -> u64 {
    const THREADS: usize = 4;
    let b = Arc::new(Barrier::new(THREADS));
    let cells: Arc<Vec<AtomicU64>> = Arc::new((0..THREADS).map(|_| AtomicU64::new(1)).collect());
    let all: Vec<_> = (0..THREADS)
        .map(|me| {
            let (b, cells) = (b.clone(), cells.clone());
            thread::spawn(move || {
                let mut leads = 0;
                for _ in 0..rounds {
                    let x = cells[(me + 1) % THREADS].load(Relaxed);
                    b.wait();
                    cells[me].store(cells[me].load(Relaxed).wrapping_mul(31).wrapping_add(x), Relaxed);
                    leads += b.wait().is_leader() as u64;
                }
                leads
            })
        })
        .collect();
    all.into_iter().map(|t| t.join().unwrap()).sum()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u64 = args.get(2).map_or(2000, |n| n.parse().unwrap());
    let item = |me, i| i * SENDERS + me;
    match args[1].as_str() {
        "unbounded" => sends!(channel(), rounds, item, takes),
        "bounded" => sends!(sync_channel(8), rounds, item, takes),
        "zero" => sends!(sync_channel(0), rounds, item, takes),
        "barrier" => println!("{}", meets(rounds)),
        "spoils" => {
            let item = |me, i| if me == 2 && i == 1500 { spoils() } else { BLOCK.as_ptr() as u64 };
            sends!(channel(), rounds, item, |rx: Receiver<u64>| rx.iter().map(uses).sum::<u64>())
        }
        _ => panic!(),
    }
}

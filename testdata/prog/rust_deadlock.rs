// Rust threads that take two of libc's mutexes in opposite orders, and main that joins them.
// ripstop: verdict deadlock objects=CHECKING,SAVINGS frames=transfer,main
// ripstop: hangs
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

#[repr(C, align(8))]
struct Lock(UnsafeCell<[u8; 40]>);
unsafe impl Sync for Lock {}

extern "C" {
    fn pthread_mutex_lock(m: *mut [u8; 40]) -> i32;
    fn pthread_mutex_unlock(m: *mut [u8; 40]) -> i32;
}

static CHECKING: Lock = Lock(UnsafeCell::new([0; 40]));
static SAVINGS: Lock = Lock(UnsafeCell::new([0; 40]));
static MET: AtomicU32 = AtomicU32::new(0);

#[inline(never)]
fn transfer(from: &Lock, to: &Lock) {
    unsafe {
        pthread_mutex_lock(from.0.get());
        MET.fetch_add(1, Ordering::SeqCst);
        while MET.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        pthread_mutex_lock(to.0.get());
        pthread_mutex_unlock(to.0.get());
        pthread_mutex_unlock(from.0.get());
    }
}

fn main() {
    let one = thread::spawn(|| transfer(&CHECKING, &SAVINGS));
    let two = thread::spawn(|| transfer(&SAVINGS, &CHECKING));
    one.join().unwrap();
    two.join().unwrap();
}

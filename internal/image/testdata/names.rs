// Rust: a method that is generic, with an inlined function in it.
#![allow(named_asm_labels)]
use std::sync::Mutex;

struct Account {
    m: Mutex<i32>,
}

#[inline(always)]
fn helper(x: i32) -> i32 {
    unsafe { std::arch::asm!(".globl mark_helper", "mark_helper: nop") };
    x + 1
}

impl Account {
    #[inline(never)]
    fn transfer<T: Into<i32>>(&self, n: T) -> i32 {
        let mut g = self.m.lock().unwrap();
        *g += helper(n.into());
        *g
    }
}

fn main() {
    let a = Account { m: Mutex::new(1) };
    println!("{}", a.transfer(3i16));
}

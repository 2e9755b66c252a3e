//! Work on several units at once.

use std::sync::{Mutex, PoisonError};
use std::{iter, panic, thread};

/// Runs `work` on all items at once, each in its own thread. Returns the outcomes in the same order.
///
/// If the system starts fewer threads, those that run also do the remaining work.
pub fn at_once<T: Send, O: Send>(all: Vec<T>, work: &(impl Fn(T) -> O + Sync)) -> Vec<O> {
    in_threads(thread::Builder::new, all, work)
}

fn in_threads<T: Send, O: Send>(
    builder: impl Fn() -> thread::Builder,
    all: Vec<T>,
    work: &(impl Fn(T) -> O + Sync),
) -> Vec<O> {
    let others = all.len().saturating_sub(1);
    let queue = Mutex::new(all.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || iter::from_fn(next).map(|(at, one)| (at, work(one))).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        let running: Vec<_> = (0..others).filter_map(|_| builder().spawn_scoped(scope, worker).ok()).collect();
        let mut done = worker();
        for thread in running {
            // A unit's thread should not panic. If it does, pass the panic on.
            done.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_items_are_worked_on_at_once_and_their_outcomes_keep_the_order() {
        let all_are_there = Barrier::new(8);
        let squares = at_once((0..8).collect(), &|number: u32| {
            all_are_there.wait();
            number * number
        });
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
        assert!(at_once(Vec::<u32>::new(), &|number| number).is_empty());
    }

    #[test]
    fn no_item_is_lost_if_the_system_starts_no_thread() {
        // No address space has room for such a stack.
        let starts_none = || thread::Builder::new().stack_size(usize::MAX / 4);
        assert!(starts_none().spawn(|| ()).is_err());
        assert_eq!(in_threads(starts_none, vec!["a", "b", "c"], &str::to_uppercase), ["A", "B", "C"]);
    }
}

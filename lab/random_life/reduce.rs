//! Finds the shortest history that leads to the same state.

use asm2464::firmware::Image;

use super::host::Host;
use super::steps::{Life, Step};

/// Removes steps from a life as long as it ends at the same place. Then makes the host patient, and removes the GPU,
/// wherever possible.
pub fn shortest(image: &Image, life: &Life, place: &str) -> Life {
    let ends_there = |life: &Life| {
        let mut host = Host::new(image, life);
        host.live(life);
        host.recover().place().as_deref() == Some(place)
    };
    let mut best = life.clone();
    let mut size = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            let mut attempt = best.clone();
            attempt.steps.drain(at..(at + size).min(best.steps.len()));
            if ends_there(&attempt) {
                best = attempt;
                shorter = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !shorter {
            break;
        }
        size = (size / 2).max(1);
    }
    for at in 0..best.steps.len() {
        let mut attempt = best.clone();
        if let Step::Control { patience, .. } | Step::Command { patience, .. } = &mut attempt.steps[at] {
            *patience = 1_000_000;
        }
        if ends_there(&attempt) {
            best = attempt;
        }
    }
    if best.gpu {
        let attempt = Life { gpu: false, ..best.clone() };
        if ends_there(&attempt) {
            best = attempt;
        }
    }
    best
}

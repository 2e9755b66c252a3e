//! Limits the cost of a proof on the model: one budget for all of its runs together, and Ctrl-C.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::progress::Progress;

use super::core::{Chip, RunEnd};
use crate::mcu::SpiFlash;

/// Instructions between two checks for Ctrl-C.
const SLICE: u64 = 1_000_000;

/// Limits of a proof: its instructions, and Ctrl-C. Clones share one budget.
#[derive(Clone)]
pub struct ProofBudget(Rc<Shared>);

struct Shared {
    spent: Cell<u64>,
    interrupt: Interrupt<'static>,
    progress: RefCell<Box<dyn Progress<u64>>>,
}

impl fmt::Debug for ProofBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofBudget").field("spent", &self.0.spent).finish_non_exhaustive()
    }
}

impl ProofBudget {
    /// Maximum number of instructions of a whole proof. 240417 takes 1.5 million.
    pub const INSTRUCTIONS: u64 = 200_000_000;

    /// Creates a budget. `progress` receives the number of instructions spent so far, about every million.
    pub fn new(interrupt: Interrupt<'static>, progress: impl Progress<u64> + 'static) -> Self {
        Self(Rc::new(Shared { spent: Cell::new(0), interrupt, progress: RefCell::new(Box::new(progress)) }))
    }

    /// Runs the chip as [`Chip::run`] does, until the budget is spent or Ctrl-C.
    pub(super) fn run<F: SpiFlash>(&self, chip: &mut Chip<F>, most: u64) -> RunEnd {
        let Shared { spent, interrupt, progress } = &*self.0;
        let begin = chip.instructions();
        loop {
            let before = chip.instructions();
            let left = (begin.saturating_add(most) - before).min(Self::INSTRUCTIONS.saturating_sub(spent.get()));
            if left == 0 || interrupt.is_requested() {
                return RunEnd::Budget;
            }
            let outcome = chip.run(left.min(SLICE));
            let ran = chip.instructions() - before;
            spent.set(spent.get() + ran);
            if ran >= SLICE {
                progress.borrow_mut().event(spent.get());
            }
            // If no instruction ran, another round would change nothing.
            if outcome != RunEnd::Budget || ran == 0 {
                return outcome;
            }
        }
    }

    /// Returns an error if Ctrl-C has cut the proof short.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        self.0.interrupt.check()
    }
}

/// A budget without Ctrl-C, which reports no progress.
impl Default for ProofBudget {
    fn default() -> Self {
        Self::new(Interrupt::never(), ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use asm2464::firmware::Image;

    use super::*;
    use crate::chip::boot::{check, check_within};

    /// An image that counts in 24 bits of IDATA. No two rounds are the same, so it never idles, and it never answers.
    fn counts() -> Image {
        let code = [0x05, 0x30, 0xE5, 0x30, 0x70, 0xFA, 0x05, 0x31, 0xE5, 0x31, 0x70, 0xF4, 0x05, 0x32, 0x80, 0xF0];
        Image::from_body([&code[..], &[0; 600]].concat()).unwrap()
    }

    #[test]
    fn an_image_that_loops_gets_one_check_and_the_report_says_where_it_loops() {
        let report = check(&counts());
        let (check, fault) = report.failure().unwrap();
        assert_eq!(report.checks.len(), 1, "{report:#?}");
        // A boot may use the whole budget (open firmware with USB4 waits for 100 million). Then the loop is searched.
        assert!(check.instructions < ProofBudget::INSTRUCTIONS + SLICE, "{report:#?}");
        assert_eq!(fault.to_string(), "no answer: the firmware goes on without one, in a loop at c:0x0000..0x000A");
    }

    #[test]
    fn ctrl_c_ends_a_proof_within_a_slice() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        let mut reported = Vec::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let budget = ProofBudget::new(Interrupt::watching(&FLAG), move |spent| {
            FLAG.store(spent >= 2 * SLICE, Ordering::Relaxed);
            sender.send(spent).unwrap();
        });
        assert_eq!(check_within(&counts(), &budget), Err(Interrupted));
        drop(budget);
        reported.extend(receiver);
        assert_eq!(reported, [SLICE, 2 * SLICE]);
    }

    #[test]
    fn all_runs_of_a_proof_share_its_instructions() {
        let budget = ProofBudget::default();
        budget.0.spent.set(ProofBudget::INSTRUCTIONS - 1_000);
        let report = check_within(&counts(), &budget).unwrap();
        assert!(report.checks[0].instructions < 200_000, "{report:#?}");
        assert_eq!(budget.0.spent.get(), ProofBudget::INSTRUCTIONS);
    }
}

//! The proof that an image works, as the user sees it: its progress, and Ctrl-C.

use asm2464_chip::chip::ProofBudget;
use indicatif::{ProgressBar, ProgressStyle};

use super::context::Context;
use super::terminal;
use crate::cli::interrupt;

/// The budget of one proof. A proof that takes long is shown as a bar.
pub(super) fn budget(context: &Context) -> ProofBudget {
    let bars = terminal::bars(context.shows_progress());
    let mut bar = None;
    ProofBudget::new(interrupt::install(), move |instructions| {
        bar.get_or_insert_with(|| bars.add(new_bar())).set_position(instructions);
    })
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::new(ProofBudget::INSTRUCTIONS);
    let template = "booting the image on the chip model [{bar:20}] {human_pos} of at most {human_len} instructions";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

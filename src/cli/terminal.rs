//! The terminal: its width, and the progress that is drawn on it.

use std::env;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, TermLike};

/// How often bars are drawn per second: indicatif's own default.
const HZ: u8 = 20;

/// All bars of the process.
static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// Returns the set of bars to which new bars are added. The first call decides whether any are drawn: pass
/// [`Context::shows_progress`](super::Context::shows_progress).
pub fn bars(are_drawn: bool) -> &'static MultiProgress {
    BARS.get_or_init(|| MultiProgress::with_draw_target(draw_target(are_drawn)))
}

/// Draws a bar again at this interval until it is finished, from a thread of its own. If no thread can be started, the
/// bar is drawn only when it changes.
pub fn keep_drawn(bar: &ProgressBar, every: Duration) {
    // The bar's own ticker panics where no thread can be started.
    let bar = bar.downgrade();
    let draw = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            thread::sleep(every);
        }
    };
    let _ = thread::Builder::new().name("bar".into()).spawn(draw);
}

/// Clears the bars, prints, and draws the bars again below. `print` must not call this function.
pub fn among_bars<T>(print: impl FnOnce() -> T) -> T {
    match BARS.get() {
        Some(bars) => bars.suspend(print),
        None => print(),
    }
}

/// Clears the bars, for a process that ends while work goes on.
pub fn clear() {
    if let Some(bars) = BARS.get() {
        let _ = bars.clear();
    }
}

/// The widest lines of running text, such as help, in columns.
pub const WIDEST_TEXT: usize = 100;

/// Returns how wide running text may be on a terminal of this width, or where there is no terminal.
pub fn text_width(columns: Option<usize>) -> usize {
    columns.map_or(WIDEST_TEXT, |columns| columns.min(WIDEST_TEXT))
}

/// Columns of the narrowest terminal that lines are folded for.
const NARROWEST: usize = 40;

/// Returns how many columns stdout has, if it is a terminal.
pub fn stdout_width() -> Option<usize> {
    io::stdout().is_terminal().then(Term::stdout).as_ref().and_then(columns)
}

/// Returns how many columns stderr has, if it is a terminal.
pub fn stderr_width() -> Option<usize> {
    io::stderr().is_terminal().then(Term::stderr).as_ref().and_then(columns)
}

fn columns(terminal: &Term) -> Option<usize> {
    terminal.size_checked().map(|(_, columns)| usize::from(columns).max(NARROWEST))
}

/// Draws on stderr, unless nothing can be drawn there.
fn draw_target(is_wanted: bool) -> ProgressDrawTarget {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !is_wanted || is_dumb {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(Unfailing(Term::buffered_stderr())), HZ)
}

/// A terminal that ignores its errors.
///
/// indicatif panics if a line is printed among its bars after the terminal is gone, and again when the bars are
/// dropped. That would end the process in the middle of a write.
#[derive(Debug)]
struct Unfailing<T>(T);

impl<T: TermLike> TermLike for Unfailing<T> {
    fn width(&self) -> u16 {
        // Ctrl-C is echoed as ^C after the bar. If that began a new line, the bar's own line could not be cleared.
        self.0.width().saturating_sub(3)
    }

    fn height(&self) -> u16 {
        self.0.height()
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.0.write_line(s).or(Ok(()))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.0.write_str(s).or(Ok(()))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use indicatif::{MultiProgress, ProgressBar};

    use super::*;

    /// A terminal whose other end is closed.
    #[derive(Debug)]
    struct Gone;

    fn gone() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }

    impl TermLike for Gone {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn write_line(&self, _: &str) -> io::Result<()> {
            gone()
        }

        fn write_str(&self, _: &str) -> io::Result<()> {
            gone()
        }

        fn clear_line(&self) -> io::Result<()> {
            gone()
        }

        fn flush(&self) -> io::Result<()> {
            gone()
        }
    }

    #[test]
    fn a_line_among_the_bars_of_a_terminal_that_is_gone_costs_only_the_line() {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(Unfailing(Gone)), HZ);
        let all = MultiProgress::with_draw_target(target);
        let bar = all.add(ProgressBar::new(10));
        bar.set_message("writing");
        let mut is_printed = false;
        all.suspend(|| is_printed = true);
        bar.finish_and_clear();
        assert!(is_printed);
    }
}

//! Kills processes that hang, so that the campaign ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any command of the campaign takes, even on a machine that many builds share.
const LONGEST: Duration = Duration::from_secs(5 * 60);

type Watched = Arc<Mutex<HashMap<u32, (Instant, bool)>>>;

/// A thread that watches processes.
#[derive(Clone)]
pub struct Watchdog(Watched);

/// A watched process. Dropping the guard ends the watch.
pub struct Guard(Watched, u32);

impl Watchdog {
    /// Starts the watchdog.
    pub fn start() -> Self {
        let watched = Watched::default();
        let watches = Arc::clone(&watched);
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                let mut watched = watches.lock().unwrap_or_else(PoisonError::into_inner);
                for (id, (since, has_bitten)) in watched.iter_mut() {
                    if since.elapsed() > LONGEST && !*has_bitten {
                        *has_bitten = true;
                        let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
                        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
                    }
                }
            }
        });
        Self(watched)
    }

    /// Watches the process with this ID.
    pub fn watch(&self, id: u32) -> Guard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (Instant::now(), false));
        Guard(Arc::clone(&self.0), id)
    }
}

impl Guard {
    /// Whether the watchdog killed the process.
    pub fn has_bitten(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&self.1).is_some_and(|(_, bitten)| *bitten)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

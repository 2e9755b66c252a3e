//! Ends processes that hang, so that the campaign ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No command of the campaign takes a tenth of this.
const LONGEST: Duration = Duration::from_secs(60);

type Watched = Arc<Mutex<HashMap<u32, (Instant, bool)>>>;

/// Watches processes.
#[derive(Clone)]
pub struct Watchdog(Watched);

/// A process that is watched until this is dropped.
pub struct Guard(Watched, u32);

impl Watchdog {
    /// Starts watching.
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

    /// Watches this process.
    pub fn watch(&self, id: u32) -> Guard {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (Instant::now(), false));
        Guard(Arc::clone(&self.0), id)
    }
}

impl Guard {
    /// Whether it had to be ended.
    pub fn has_bitten(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&self.1).is_some_and(|(_, bitten)| *bitten)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

//! A virtual bridge that several owners share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::unit::VirtualBridge;

/// A unit that its transports share with the code that plugs it in and out.
#[derive(Debug, Clone)]
pub struct SharedBridge(Arc<Mutex<VirtualBridge>>);

impl SharedBridge {
    /// Shares a unit.
    pub fn new(unit: VirtualBridge) -> Self {
        Self(Arc::new(Mutex::new(unit)))
    }

    /// Locks the unit.
    pub fn lock(&self) -> MutexGuard<'_, VirtualBridge> {
        // A panic can't break an invariant that the next command relies on: the unit answers, or it does not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

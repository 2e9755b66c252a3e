//! Progress reports. The library never prints.

/// Receives the events of one kind of work. A closure that takes the event implements it.
pub trait Progress<E> {
    /// Receives an event.
    fn event(&mut self, event: E);
}

impl<E, F: FnMut(E) + ?Sized> Progress<E> for F {
    fn event(&mut self, event: E) {
        self(event);
    }
}

/// Ignores the events.
impl<E> Progress<E> for () {
    fn event(&mut self, _event: E) {}
}

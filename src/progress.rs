//! How work tells where it is. The library never prints.

/// Is told of the events of one kind of work. A closure that takes them is one.
pub trait Progress<E> {
    /// Something happened.
    fn event(&mut self, event: E);
}

impl<E, F: FnMut(E) + ?Sized> Progress<E> for F {
    fn event(&mut self, event: E) {
        self(event);
    }
}

/// Tells nobody.
impl<E> Progress<E> for () {
    fn event(&mut self, _event: E) {}
}

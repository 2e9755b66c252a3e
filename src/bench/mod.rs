//! Measures what a bridge does.

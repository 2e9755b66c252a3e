//! The program `asmpatch`: arguments to calls of `asmpatch-core`, results to text. Its library is for its own tests; who
//! wants to drive, model or flash a unit takes the crates.

#[doc(hidden)]
pub mod cli;
mod demo;
pub mod embedded;
pub mod interrupt;

//! What words and prints: the command that was run, of which each printed one is made; advice and errors as steps; lines,
//! tables, pages, questions and the terminal. None of it knows a command's work.

#[macro_use]
pub mod print;

pub mod advice;
pub mod advice_part;
pub mod ask;
pub mod by_hand;
pub mod command_tree;
pub mod errors;
pub mod interrupt;
pub mod invocation;
pub mod line;
pub mod markdown;
pub mod pages;
pub mod printed_command;
pub mod table;
pub mod terminal;
pub mod usage;
pub mod worded_step;

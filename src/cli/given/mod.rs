//! What commands are given, and share: the options that several have, the settings of a run, the log, and what the user
//! named: files, images, symbols.

pub mod arguments;
pub mod context;
pub mod image_file;
pub mod log;
pub mod named_image;
pub mod symbols;
pub mod user_files;

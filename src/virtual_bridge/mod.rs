//! A bridge in software.

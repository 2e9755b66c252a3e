//! The practice image: the project's own 8051 program in the vendor's container.

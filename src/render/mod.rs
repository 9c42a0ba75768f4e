//! Output and errors to bytes.

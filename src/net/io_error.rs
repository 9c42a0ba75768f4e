//! Texts of system errors.

use std::io;

/// The text of the error if nothing listens on the port.
pub const CONNECTION_REFUSED: &str = "connection refused";

/// Returns the text of a system error without its number. A closed connection, which has no text, gets one.
pub(crate) fn io_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CONNECTION_REFUSED.to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the other side".to_owned(),
        io::ErrorKind::UnexpectedEof => "connection closed by the other side".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

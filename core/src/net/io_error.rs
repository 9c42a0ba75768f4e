//! Texts of system errors.

use std::io;

/// The text of the error if nothing listens on the port.
pub const CONNECTION_REFUSED: &str = "connection refused";

/// The texts of the errors if the other side has ended the connection.
pub const CONNECTION_ENDED: [&str; 2] = [CONNECTION_RESET, CONNECTION_CLOSED];
const CONNECTION_RESET: &str = "connection reset by the other side";
const CONNECTION_CLOSED: &str = "connection closed by the other side";

/// Returns the text of a system error without its number. A closed connection, which has no text, gets one.
pub(crate) fn io_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CONNECTION_REFUSED.to_owned(),
        io::ErrorKind::ConnectionReset => CONNECTION_RESET.to_owned(),
        io::ErrorKind::UnexpectedEof => CONNECTION_CLOSED.to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

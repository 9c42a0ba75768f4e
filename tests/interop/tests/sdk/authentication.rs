//! Authentication of the SDK: password, service account token.

use std::fs;
use std::path::Path;
use std::time::Duration;

use azure_iot_operations_mqtt::error::SessionErrorKind;
use mqkv_interop::{Mqkv, Relay, SdkClient, add_user, connection_error, settings, within};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_user_and_password_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let right = write(folder.path(), "right", "open sesame");
    let wrong = write(folder.path(), "wrong", "open barley");
    add_user(&users, "ali", "open sesame");
    let server = Mqkv::start(&["--users", users.to_str().unwrap()]);
    let user = |password: &str| {
        settings(server.port(), "guest").username("ali".to_owned()).password_file(password.to_owned())
    };
    let client = SdkClient::connect_with("guest", user(&right));
    client.set("k", "v").await;
    assert_eq!(connection_error(user(&wrong).client_id("other")).await, SessionErrorKind::ReconnectHalted);
    let anonymous = settings(server.port(), "anonymous");
    assert_eq!(connection_error(anonymous).await, SessionErrorKind::ReconnectHalted);
    assert_eq!(client.get("k").await.unwrap(), b"v");
    client.disconnect().await;
}

#[tokio::test]
async fn a_service_account_token_is_checked_and_renewed_within_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = write(folder.path(), "tokens", "pod first-token\npod second-token\n");
    let mounted = folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let token = write(&mounted, "token", "first-token");
    let wrong = write(folder.path(), "wrong", "third-token");
    let server = Mqkv::start(&["--sat-tokens", &tokens]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect_with("guest", settings(relay.port(), "guest").sat_file(token.clone()));
    client.set("k", "v").await;
    let other = settings(server.port(), "other").sat_file(wrong);
    assert_eq!(connection_error(other).await, SessionErrorKind::ReconnectHalted);
    // The SDK watches the file and waits some seconds after its last change.
    write(&mounted, "token", "second-token");
    within(async {
        while relay.reauthenticated() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(client.get("k").await.unwrap(), b"v");
    assert_eq!(relay.sessions_present(), [false], "the connection stays open");
    client.disconnect().await;
}

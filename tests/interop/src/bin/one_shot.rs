//! Gets one key with the official SDK and prints its value: `one_shot PORT KEY`. The bench `compare` measures it beside
//! `mqkv get`.

use std::env;

use mqkv_interop::SdkClient;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, key] = &arguments[..] else { panic!("expected a port and a key") };
    let sdk = SdkClient::connect(port.parse().expect("a port"), &format!("one-shot-{}", std::process::id()));
    let value = sdk.get(key.as_str()).await.unwrap_or_default();
    println!("{}", String::from_utf8_lossy(&value));
    sdk.disconnect().await;
}

//! A client for tests that says and hears packets one by one, over an in-memory connection.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use self::wire::{
    ConnAck, Connect, ConnectAuth, ConnectProperties, Disconnect, DisconnectReasonCode, LastWill, Packet,
    PubAck, PubAckReason, Publish, PublishProperties, QoS, SubAck, Subscribe, SubscribeFilter,
    SubscribeProperties,
};
use super::server::Server;

/// The MQTT crate's types, with which the tests play the client.
pub mod wire {
    pub use rumqttc::mqttbytes::QoS;
    pub use rumqttc::mqttbytes::v5::*;
}

/// Long enough for a busy machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to connect.
pub struct Hello {
    pub client_id: &'static str,
    pub clean_start: bool,
    pub keep_alive: u16,
    pub will: Option<LastWill>,
    pub properties: ConnectProperties,
}

impl Hello {
    pub fn new(client_id: &'static str) -> Self {
        let properties = ConnectProperties::new();
        Self { client_id, clean_start: false, keep_alive: 0, will: None, properties }
    }

    /// With a session that lives for an hour.
    pub fn lasting(client_id: &'static str) -> Self {
        let mut hello = Self::new(client_id);
        hello.properties.session_expiry_interval = Some(3600);
        hello
    }
}

pub struct Client {
    pub stream: DuplexStream,
    input: BytesMut,
}

impl Client {
    /// A client that has not said anything yet.
    pub fn silent(server: &Server) -> Self {
        Self { stream: server.pipe(), input: BytesMut::new() }
    }

    pub async fn connect(server: &Server, client_id: &'static str) -> Self {
        Self::connect_with(server, Hello::new(client_id)).await.0
    }

    pub async fn connect_with(server: &Server, hello: Hello) -> (Self, ConnAck) {
        let mut client = Self::silent(server);
        client.say_hello(hello).await;
        match client.hear().await {
            Packet::ConnAck(connack) => (client, connack),
            other => panic!("no CONNACK but {other:?}"),
        }
    }

    pub async fn say_hello(&mut self, hello: Hello) {
        let connect = Connect {
            keep_alive: hello.keep_alive,
            client_id: hello.client_id.to_owned(),
            clean_start: hello.clean_start,
            properties: Some(hello.properties),
        };
        self.say(Packet::Connect(connect, hello.will, ConnectAuth::None)).await;
    }

    pub async fn say(&mut self, packet: Packet) {
        let mut output = BytesMut::new();
        packet.write(&mut output, None).unwrap();
        self.say_bytes(&output).await;
    }

    pub async fn say_bytes(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("the broker does not read").unwrap();
    }

    /// The next packet; none when the broker has closed.
    pub async fn hear_any(&mut self) -> Option<Packet> {
        loop {
            match Packet::read(&mut self.input, None) {
                Ok(packet) => return Some(packet),
                Err(_) => {
                    let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input));
                    if read.await.expect("the broker says nothing").unwrap() == 0 {
                        assert!(self.input.is_empty(), "half a packet at the end");
                        return None;
                    }
                }
            }
        }
    }

    /// The next so many bytes.
    pub async fn hear_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.input.len() < count {
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input));
            assert!(read.await.expect("the broker says nothing").unwrap() > 0, "the broker closed");
        }
        self.input.split_to(count).to_vec()
    }

    /// All bytes until the broker closes.
    pub async fn hear_rest(mut self) -> Vec<u8> {
        while timeout(PATIENCE, self.stream.read_buf(&mut self.input))
            .await
            .expect("it is not closed")
            .unwrap()
            > 0
        {}
        self.input.to_vec()
    }

    pub async fn hear(&mut self) -> Packet {
        self.hear_any().await.expect("the broker closed")
    }

    pub async fn hear_publish(&mut self) -> Publish {
        match self.hear().await {
            Packet::Publish(publish) => publish,
            other => panic!("no PUBLISH but {other:?}"),
        }
    }

    /// The topics of the next messages, each acknowledged.
    pub async fn hear_topics(&mut self, count: usize) -> Vec<String> {
        let mut topics = Vec::new();
        for _ in 0..count {
            let publish = self.hear_publish().await;
            if publish.qos == QoS::AtLeastOnce {
                self.say(Packet::PubAck(PubAck::new(publish.pkid, None))).await;
            }
            topics.push(String::from_utf8(publish.topic.to_vec()).unwrap());
        }
        topics
    }

    pub async fn hear_puback(&mut self) -> PubAckReason {
        match self.hear().await {
            Packet::PubAck(puback) => puback.reason,
            other => panic!("no PUBACK but {other:?}"),
        }
    }

    /// The reason of the DISCONNECT, after which the broker must close.
    pub async fn hear_disconnect(&mut self) -> DisconnectReasonCode {
        let reason = match self.hear().await {
            Packet::Disconnect(disconnect) => disconnect.reason_code,
            other => panic!("no DISCONNECT but {other:?}"),
        };
        assert_eq!(self.hear_any().await, None, "after the DISCONNECT");
        reason
    }

    /// Nothing is on its way: the answer to a ping is the next packet.
    pub async fn hear_nothing(&mut self) {
        self.say(Packet::PingReq).await;
        assert_eq!(self.hear().await, Packet::PingResp);
    }

    pub async fn publish(&mut self, publish: Publish) {
        self.say(Packet::Publish(publish)).await;
    }

    pub async fn subscribe(&mut self, filter: SubscribeFilter) {
        self.subscribe_with(filter, None).await;
    }

    pub async fn subscribe_with(&mut self, filter: SubscribeFilter, id: Option<usize>) -> SubAck {
        let properties = SubscribeProperties { id, user_properties: Vec::new() };
        let subscribe = Subscribe { pkid: 9, filters: vec![filter], properties: Some(properties) };
        self.say(Packet::Subscribe(subscribe)).await;
        match self.hear().await {
            Packet::SubAck(suback) => suback,
            other => panic!("no SUBACK but {other:?}"),
        }
    }

    /// Says goodbye and waits for the broker to close.
    pub async fn disconnect(mut self) {
        self.say(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection))).await;
        assert_eq!(self.hear_any().await, None);
    }
}

pub fn qos_0(topic: &str) -> Publish {
    Publish::new(topic, QoS::AtMostOnce, "payload", None)
}

pub fn qos_1(topic: &str, packet_id: u16) -> Publish {
    Publish { pkid: packet_id, ..Publish::new(topic, QoS::AtLeastOnce, "payload", None) }
}

pub fn retained(topic: &str, payload: &'static str) -> Publish {
    let payload = Bytes::from_static(payload.as_bytes());
    Publish { retain: true, payload, ..qos_0(topic) }
}

pub fn with_properties(publish: Publish, change: impl FnOnce(&mut PublishProperties)) -> Publish {
    let mut properties = PublishProperties::default();
    change(&mut properties);
    Publish { properties: Some(properties), ..publish }
}

pub fn filter(path: &str) -> SubscribeFilter {
    SubscribeFilter::new(path, QoS::AtLeastOnce)
}

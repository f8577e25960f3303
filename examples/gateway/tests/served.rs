//! The gateway's addresses: what is asked of them, how they close, and a load from elsewhere.

use super::*;

/// An address that is taken is named, and so is the argument that asked for it.
#[tokio::test]
async fn an_address_that_is_taken() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr().unwrap();
    let metrics = Metrics::new().unwrap();
    let memory = Memory::default();
    let gateway = Gateway::start(Kind::Plain, addr, &memory, metrics.provider()).await;
    let error = gateway.err().unwrap().to_string();
    assert!(error.starts_with(&format!("--grpc: {addr}: ")), "{error}");
}

/// A whole gateway with its web side.
async fn served() -> (Arc<Gateway>, Web) {
    let metrics = Metrics::new().unwrap();
    let gateway = start(Kind::Whole, &metrics).await;
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let shown = Arc::clone(&gateway);
    let web = Web::start(shown, metrics, web::Phase::default(), any).await;
    (gateway, web.unwrap())
}

/// Who is being answered is answered to the end.
#[tokio::test]
async fn a_gateway_that_closes() {
    let (gateway, web) = served().await;
    let mut client = ChatClient::connect(gateway.uri()).await.unwrap();
    let mut answer = client.stream(request(5, 40)).await.unwrap().into_inner();
    assert!(answer.message().await.unwrap().is_some());
    let rest = tokio::spawn(async move {
        let mut tokens = 1;
        while answer.message().await.unwrap().is_some() {
            tokens += 1;
        }
        tokens
    });
    // One that keeps its connection without asking is not waited for.
    let idle = tokio::net::TcpStream::connect(web.uri().replace("http://", "")).await;
    let idle = idle.unwrap();
    assert_eq!(tokio::join!(web.close(), gateway.close()), (true, true));
    assert_eq!(rest.await.unwrap(), 40);
    assert!(ChatClient::connect(gateway.uri()).await.is_err());
    drop(idle);
}

/// One line of text over HTTP/1, as `curl` would have it.
async fn http(web: &Web, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let addr = web.uri().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("{request}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn the_web_side() {
    let (gateway, web) = served().await;
    let post = |path: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:1\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
    };
    let get = |path| format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:1\r\nconnection: close\r\n");

    // Before any call: a process that is asked whether it is ready gets none yet.
    let health = http(&web, &get("/healthz")).await;
    assert!(health.ends_with("ok\n"), "{health}");
    let answer = http(&web, &post("/chat", "", "Why?")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("slow"), "{answer}");
    let page = http(&web, &get("/")).await;
    assert!(page.contains("default-src 'none'"), "{page}");
    let metrics = http(&web, &get("/metrics")).await;
    assert!(metrics.contains("grpc_client_call_duration"), "{metrics}");
    let numbers = http(&web, &get("/stats.json")).await;
    assert!(numbers.contains("\"phase\":null"), "{numbers}");

    // A name that was turned to this address is its owner's page.
    let own = post(
        "/region/west?errors=0",
        "origin: http://127.0.0.1:1\r\n",
        "",
    );
    let rebound = http(&web, &own.replace("127.0.0.1:1", "evil.example:1")).await;
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");

    let slow = post("/region/east?floor_ms=250&errors=0.5", "", "");
    let changed = http(&web, &slow).await;
    assert!(changed.starts_with("HTTP/1.1 200"), "{changed}");
    assert!(changed.contains("\"floor_ms\":250.0"), "{changed}");
    for (origin, code) in [
        ("http://127.0.0.1:1", 200),
        ("http://y", 403),
        ("null", 403),
    ] {
        let asked = post(
            "/region/west?errors=0",
            &format!("origin: {origin}\r\n"),
            "",
        );
        let answer = http(&web, &asked).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
        assert!(
            answer.contains("content-type: application/json"),
            "{answer}"
        );
    }
    let east = gateway.fleet.region("east").unwrap();
    assert_eq!(east.floor(), Duration::from_millis(250));
    assert_eq!(east.errors(), 0.5);
    // What is wrong in a part changes nothing.
    for wrong in [
        "floor_ms=7&errors=2",
        "floor_ms=7&depth=1",
        "floor_ms=soon",
        "floor_ms=nan",
    ] {
        let refused = http(&web, &post(&format!("/region/east?{wrong}"), "", "")).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(refused.contains("{\"error\":\""), "{refused}");
        assert_eq!(east.floor(), Duration::from_millis(250));
    }

    // So does a load that plays to it from elsewhere.
    let remote = Remote::new(&format!("{}/", web.uri())).unwrap();
    assert_eq!(remote.stats().await.unwrap()["grpc"], gateway.uri());
    remote
        .change(&Region::named("east").unwrap())
        .await
        .unwrap();
    assert_eq!((east.floor(), east.errors()), (Duration::ZERO, 0.0));
    let nowhere = Region::new("north");
    let error = remote.change(&nowhere).await.unwrap_err().to_string();
    assert!(error.contains("/region/north"), "{error}");
    for (phase, name) in [
        (Some(Phase::Errors), json!("error ramp")),
        (None, json!(null)),
    ] {
        remote.enter(phase).await.unwrap();
        assert_eq!(remote.stats().await.unwrap()["phase"], name);
    }
    let refused = http(&web, &post("/phase/lunch", "", "")).await;
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    for wrong in ["127.0.0.1:1", "http://", "http://a/b"] {
        assert!(Remote::new(wrong).is_err(), "{wrong}");
    }

    // A lane that has more than it may shed the next one. After their first tokens its calls teach
    // it nothing.
    let batch = "x-criticality: sheddable\r\n";
    let mut answers = Vec::new();
    let mut client = ChatClient::connect(gateway.uri()).await.unwrap();
    for call in 1..=20 {
        let mut request = request(call, 512);
        let sheddable = "sheddable".parse().unwrap();
        request.metadata_mut().insert("x-criticality", sheddable);
        let mut answer = client.stream(request).await.unwrap().into_inner();
        assert!(answer.message().await.unwrap().is_some());
        answers.push(answer);
    }
    gateway.lanes.as_ref().unwrap().resume("batch", 1);
    let shed = http(&web, &post("/chat", batch, "Why?")).await;
    assert!(shed.starts_with("HTTP/1.1 429"), "{shed}");
    assert!(shed.to_lowercase().contains("retry-after: "), "{shed}");
    let told = "{\"error\":\"the lane batch has no place\"}\n";
    assert!(shed.ends_with(told), "{shed}");
}

/// A load that is stopped, or of which something fails, leaves nothing wrong with the regions.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_stopped() {
    let metrics = Metrics::new().unwrap();
    let gateway = start(Kind::Whole, &metrics).await;
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let phase = web::Phase::default();
    let (shown, told) = (Arc::clone(&gateway), Arc::clone(&phase));
    let web = Web::start(shown, metrics, told, any).await.unwrap();
    let asked = Load {
        uri: web.uri(),
        length: Duration::from_secs(5),
    };
    let [west, east] = ["west", "east"].map(|it| gateway.fleet.region(it).unwrap());
    let fails = || west.errors() > 0.0 && east.errors() > 0.0;
    let stopped = async {
        until(fails).await;
        assert_eq!(*phase.lock(), Some(Phase::Errors));
        Ok(())
    };
    assert!(!load(&asked, stopped).await.unwrap());
    assert_eq!((west.errors(), east.errors()), (0.0, 0.0));
    assert_eq!(*phase.lock(), None);

    let no_signals = async {
        until(fails).await;
        Err(std::io::Error::other("no signals here"))
    };
    assert!(!load(&asked, no_signals).await.unwrap());
    assert_eq!((west.errors(), east.errors()), (0.0, 0.0));

    // Its gateway goes meanwhile.
    let gone = async {
        until(fails).await;
        drop(web);
        std::future::pending().await
    };
    let error = load(&asked, gone).await.unwrap_err().to_string();
    assert!(error.contains(&asked.uri), "{error}");
}

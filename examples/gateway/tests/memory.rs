//! What goes from life to life, and no other file.

use super::*;

/// A gateway that is started again has its lanes' limits; of its thresholds the file tells too, and
/// how a channel goes on from them is the library's to test.
#[tokio::test]
async fn a_memory_from_life_to_life() {
    let metrics = Metrics::new().unwrap();
    let file = std::env::temp_dir().join(format!("gateway-life-{}.json", std::process::id()));
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let limit = |gateway: &Gateway| gateway.lanes.as_ref().unwrap().measured()[1].limit;

    let first = start(Kind::Whole, &metrics).await;
    let mut client = ChatClient::connect(first.uri()).await.unwrap();
    let mut answer = client.stream(request(1, 1)).await.unwrap().into_inner();
    while answer.message().await.unwrap().is_some() {}
    first.lanes.as_ref().unwrap().resume("batch", 37);
    Memory::write(&first, &file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(METHOD), "{text}");

    let memory = Memory::open(&file).unwrap();
    let second = Gateway::start(Kind::Whole, any, &memory, metrics.provider());
    assert_eq!(limit(&second.await.unwrap()), 37);

    // What is none of ours is not overwritten when this life is over.
    let others = "{\"name\": \"another program's\"}";
    for wrong in [
        "{\"lanes\": 7, \"channel\": ",
        "{\"lanes\": 7}",
        others,
        "[]",
        "",
    ] {
        std::fs::write(&file, wrong).unwrap();
        let error = Memory::open(&file).unwrap_err();
        assert!(error.contains(&*file.to_string_lossy()), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), wrong);
    }
    std::fs::remove_file(&file).unwrap();
    let memory = Memory::open(&file).unwrap();
    let third = Gateway::start(Kind::Whole, any, &memory, metrics.provider());
    assert_eq!(limit(&third.await.unwrap()), 20);
    assert!(!file.exists());
    let nowhere = file.with_extension("").join("learned.json");
    let error = Memory::open(&nowhere).unwrap_err();
    assert!(error.contains("learned.json"), "{error}");
}

/// Nothing but the file is written: neither what has nearly its name, nor, when it is opened, itself.
#[test]
fn a_memory_touches_no_other_file() {
    let folder = std::env::temp_dir().join(format!("gateway-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ours = "{\"channel\": null, \"lanes\": null}";
    for (file, text) in [("a.json", ours), ("a.new", "another's"), ("b.new", ours)] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    for file in ["a.json", "b.new"] {
        Memory::open(&folder.join(file)).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join(file)).unwrap(), ours);
    }
    let others = std::fs::read_to_string(folder.join("a.new")).unwrap();
    assert_eq!(others, "another's");
    std::fs::remove_dir_all(&folder).unwrap();
}

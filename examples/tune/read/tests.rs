//! Each format, good and bad.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{
        Serializer, V2DeflateSerializer, V2Serializer,
        interval_log::{IntervalLogWriterBuilder, Tag},
    },
};

use super::*;

fn source(column: Option<&str>, unit: Option<Unit>) -> Source {
    Source {
        file: "f".to_owned(),
        column: column.map(str::to_owned),
        unit,
    }
}

fn read_text(text: &str, column: Option<&str>, unit: Option<Unit>) -> Result<Recorded, String> {
    read_from(&source(column, unit), text.as_bytes())
}

/// Enough lines of 30 ms that only the first matter.
fn padded(first: &str) -> String {
    format!("{first}\n{}", "30\n".repeat(20))
}

fn smallest(recorded: &Recorded) -> Duration {
    recorded.latencies.values()[0]
}

#[test]
fn a_number_a_line() {
    for (line, expected) in [
        ("12", 12_000),
        ("12.5", 12_500),
        (" 1e1 ", 10_000),
        ("12ms", 12_000),
        ("340us", 340),
        ("340 \u{b5}s", 340),
        ("0.0012s", 1_200),
        ("9000 ns", 9),
        ("0", 0),
        ("7 # a remark", 7_000),
        ("# a remark\n\n8\r", 8_000),
        ("\u{feff}9", 9_000),
    ] {
        let recorded = read_text(&padded(line), None, None).unwrap();
        assert_eq!(
            smallest(&recorded),
            Duration::from_micros(expected),
            "{line:?}"
        );
        assert_eq!(recorded.latencies.count(), 21, "{line:?}");
        assert_eq!(recorded.format, "one latency a line");
    }
    let recorded = read_text(&padded("12"), None, Some(Unit::Us)).unwrap();
    assert_eq!(smallest(&recorded), Duration::from_micros(12));
}

#[test]
fn what_is_no_latency_is_named() {
    for (line, wrong) in [
        ("5\n-3", r#"f:2: "-3", in ms, is not in [0, 3600 s]"#),
        ("5\n\nNaN", r#"f:3: "NaN", in ms, is not in [0, 3600 s]"#),
        ("inf", r#"f:1: "inf", in ms, is not in [0, 3600 s]"#),
        ("5\n3601s", r#"f:2: "3601s", in s, is not in [0, 3600 s]"#),
        ("5\ntwelve", r#"f:2: "twelve" is not a number"#),
        ("5\n12 parsecs", r#"f:2: "12 parsecs" is not a number"#),
        ("5\n1;2", r#"f:2: "1;2" is not a number"#),
    ] {
        assert_eq!(read_text(&padded(line), None, None).unwrap_err(), wrong);
    }
    for (text, wrong) in [
        ("", "f: no numbers"),
        ("# only a remark\n\n", "f: no numbers"),
        ("\n\n", "f: no numbers"),
        ("latency_ms\n", "f:1: \"latency_ms\" is not a number"),
        ("a,b\nc,d\n", "f: no numbers"),
        ("12\n", "f: the number of values, 1, is not at least 20"),
    ] {
        assert_eq!(read_text(text, None, None).unwrap_err(), wrong, "{text:?}");
    }
    let error = read_from(&source(None, None), &b"12\n\xff\n"[..]).unwrap_err();
    assert_eq!(error, "f:2: not UTF-8");
    let endless = "1".repeat(2 * LONGEST_LINE);
    let error = read_text(&endless, None, None).unwrap_err();
    assert_eq!(error, "f:1: longer than 1048576 bytes");
    let missing = Source {
        file: "no/such/file".to_owned(),
        ..source(None, None)
    };
    assert!(read(&missing).unwrap_err().starts_with("no/such/file: "));
    let folder = Source {
        file: "examples".to_owned(),
        ..source(None, None)
    };
    assert!(read(&folder).unwrap_err().starts_with("examples: "));
}

#[test]
fn a_column_of_a_table() {
    let rows = |head: &str, row: &str| format!("{head}\n{}", format!("{row}\n").repeat(20));
    for (table, column, expected, name) in [
        (
            rows("at,latency", "1,12"),
            Some("latency"),
            12_000,
            r#"column "latency""#,
        ),
        (
            rows("at,latency", "1,12"),
            Some("2"),
            12_000,
            r#"column "latency""#,
        ),
        // The only numbers, or the only ones that are called so.
        (rows("route,ms", "/a,12"), None, 12_000, r#"column "ms""#),
        (
            rows("at,Latency_us,code", "1,12,0"),
            None,
            12,
            r#"column "Latency_us""#,
        ),
        (rows("1,12", "1,12"), Some("2"), 12_000, "column 2"),
        (rows("/a,12ms", "/a,12ms"), None, 12_000, "column 2"),
        // Names go before numbers.
        (rows("2,1", "7,12"), Some("2"), 7_000, r#"column "2""#),
        (rows("a;b", "x;12"), None, 12_000, r#"column "b""#),
        (
            rows("a\tduration (s)", "x\t0.012"),
            None,
            12_000,
            r#"column "duration (s)""#,
        ),
        (
            rows(
                "\"route, and more\",\"took, \"\"ms\"\"\"",
                "\"/a,\n/b\",\"12\"",
            ),
            None,
            12_000,
            r#"column "took, \"ms\"""#,
        ),
        (rows("latency", "12"), None, 12_000, r#"column "latency""#),
        (
            rows("# a remark\nlatency,n", "12,x"),
            Some("latency"),
            12_000,
            r#"column "latency""#,
        ),
        (
            rows("\u{feff}latency,n", "12,x"),
            Some("latency"),
            12_000,
            r#"column "latency""#,
        ),
    ] {
        let recorded = read_text(&table, column, None).unwrap();
        assert_eq!(
            smallest(&recorded),
            Duration::from_micros(expected),
            "{table:?}"
        );
        assert!((20..=21).contains(&recorded.latencies.count()), "{table:?}");
        assert_eq!(recorded.format, format!("a table, {name}"));
    }
    // What is asked for goes before what a name says.
    let table = rows("latency_us", "12");
    let recorded = read_text(&table, None, Some(Unit::Ms)).unwrap();
    assert_eq!(smallest(&recorded), Duration::from_millis(12));
    assert_eq!(read_text(&table, None, None).unwrap().unit, Unit::Us);

    for (table, column, wrong) in [
        (
            "a,b\n1,2\n",
            None,
            r#"f: say --column, a name or a number: "a", "b""#,
        ),
        (
            "a,b\n1,2\n",
            Some("c"),
            r#"f: "c" is none of its columns: "a", "b""#,
        ),
        (
            "a,b\n1,2\n",
            Some("0"),
            r#"f: "0" is none of its columns: "a", "b""#,
        ),
        (
            "a,b\n1,2\n",
            Some("3"),
            r#"f: "3" is none of its columns: "a", "b""#,
        ),
        (
            "a,b\n1,2\n1,-2\n",
            Some("b"),
            r#"f:3: column "b": "-2", in ms, is not in [0, 3600 s]"#,
        ),
        (
            "a,b\n1,2\n1\n",
            Some("b"),
            r#"f:3: column "b": there is none"#,
        ),
        (
            "a,b\n1,2\n1,\n",
            Some("b"),
            r#"f:3: column "b": "" is not a number"#,
        ),
        (
            "a,b\n1,2\n",
            Some("b"),
            "f: the number of values, 1, is not at least 20",
        ),
    ] {
        assert_eq!(read_text(table, column, None).unwrap_err(), wrong);
    }
}

/// A log of two intervals: a thousand values from 1 ms on, then one of two seconds; in nanoseconds, or
/// in others of which `per_ms` are a millisecond.
fn log(serializer: &mut impl Serializer, per_ms: u64, divisor: f64) -> Vec<u8> {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for value in 1..=1_000 {
        histogram.record(value * per_ms).unwrap();
    }
    let mut log = Vec::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Logged by a test]");
    let mut writer = builder
        .with_max_value_divisor(divisor)
        .begin_log_with(&mut log, serializer)
        .unwrap();
    let second = Duration::from_secs(1);
    writer
        .write_histogram(&histogram, second, second, None)
        .unwrap();
    histogram.reset();
    histogram.record(2_000 * per_ms).unwrap();
    writer
        .write_histogram(&histogram, second * 2, second, None)
        .unwrap();
    log
}

#[test]
fn a_log_of_histograms() {
    let near = |latency: Duration, ms: f64| (latency.as_secs_f64() * 1e3 / ms - 1.0).abs() < 2e-3;
    for (log, unit, expected) in [
        (
            log(&mut V2DeflateSerializer::new(), 1_000_000, 1e6),
            None,
            Unit::Ns,
        ),
        (
            log(&mut V2Serializer::new(), 1_000_000, 1e6),
            None,
            Unit::Ns,
        ),
        (
            log(&mut V2Serializer::new(), 1_000_000, 1e9),
            None,
            Unit::Ns,
        ),
        (
            log(&mut V2DeflateSerializer::new(), 1_000, 1e3),
            None,
            Unit::Us,
        ),
        (
            log(&mut V2DeflateSerializer::new(), 1, 1.0),
            Some(Unit::Ms),
            Unit::Ms,
        ),
    ] {
        let recorded = read_from(&source(None, unit), log.as_slice()).unwrap();
        assert_eq!(recorded.format, "an HDR histogram log of 2 intervals");
        assert_eq!(recorded.unit, expected);
        assert_eq!(recorded.latencies.count(), 1_001);
        let values = recorded.latencies.values();
        assert_eq!(values.len(), 1_001);
        assert!(
            near(values[0], 1.0) && near(values[1_000], 2_000.0),
            "{values:?}"
        );
        assert!(near(values[500], 501.0), "{values:?}");
        assert!(!recorded.latencies.is_exact());
    }

    let log = log(&mut V2DeflateSerializer::new(), 1, 1.0);
    let error = read_from(&source(None, None), log.as_slice()).unwrap_err();
    assert_eq!(error, "f: its unit does not show; say --unit");
}

#[test]
fn tags_of_a_log_are_columns() {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let builder = IntervalLogWriterBuilder::new();
    let mut writer = builder.begin_log_with(&mut log, &mut serializer).unwrap();
    for (ms, tag) in [(10, None), (20, Tag::new("get")), (30, Tag::new("put"))] {
        histogram.reset();
        histogram.record_n(ms, 50).unwrap();
        let second = Duration::from_secs(1);
        writer
            .write_histogram(&histogram, second, second, tag)
            .unwrap();
    }
    let _ = writer;
    let read = |tag| read_from(&source(tag, Some(Unit::Ms)), log.as_slice());
    for (tag, ms) in [("get", 20), ("put", 30), ("", 10)] {
        let recorded = read(Some(tag)).unwrap();
        assert_eq!(recorded.latencies.count(), 50);
        assert_eq!(
            smallest(&recorded).as_secs_f64().mul_add(1e3, 0.5) as u64,
            ms
        );
    }
    assert_eq!(
        read(None).unwrap_err(),
        r#"f: say --column, a tag, or "" for none: "", "get", "put""#
    );
    assert_eq!(
        read(Some("post")).unwrap_err(),
        r#"f: "post" is none of its tags: "", "get", "put""#
    );
}

#[test]
fn a_broken_log_is_named() {
    let head = "#[Histogram log format version 1.3]\n";
    let not_v2 = STANDARD.encode([0x1c, 0x84, 0x93, 0x01, 0, 0, 0, 0]);
    for (line, wrong) in [
        ("1.0,1.0,2.0,HIST!!", "f:2: a histogram that is not base64"),
        (
            &format!("1.0,1.0,2.0,{not_v2}"),
            "f:2: a histogram that is not V2",
        ),
        ("12.5", "f:2: not a line of a histogram log"),
    ] {
        let error = read_text(&format!("{head}{line}\n"), None, None).unwrap_err();
        assert!(error.starts_with(wrong), "{error}");
    }
    assert_eq!(read_text(head, None, None).unwrap_err(), "f: no numbers");
}

/// What is too many to keep goes through a histogram.
#[test]
fn many_values_stay_few() {
    let many = 3 * Latencies::EXACT;
    let mut text = String::new();
    for value in 0..many {
        writeln!(text, "{}", 10.0 + value as f64 / many as f64 * 90.0).unwrap();
    }
    let recorded = read_text(&text, None, None).unwrap();
    assert_eq!(recorded.latencies.count(), many as u64);
    assert!(!recorded.latencies.is_exact());
    let values = recorded.latencies.values();
    assert_eq!(values.len(), Latencies::EXACT);
    assert!(values.is_sorted());
    for share in [0.0, 0.5, 0.99, 0.99999] {
        let value = values[(share * values.len() as f64) as usize].as_secs_f64() * 1e3;
        let expected = 10.0 + share * 90.0;
        assert!(
            (value / expected - 1.0).abs() < 2e-3,
            "{value} for {expected}"
        );
    }
}

//! Runs the program as a reader would, and reads what it prints.

use std::process::Command;

#[test]
fn a_slow_call_is_hedged_and_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_swap-example"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");

    // One call in fifty is slow, and the first of them comes after the 20 samples.
    let rescued = text.lines().any(|line| {
        line.contains(" 2 attempts in ")
            && line.contains(": original 127.0.0.1:")
            && line.contains(" discarded (")
            && line.contains("; hedge 127.0.0.1:")
            && line.contains(" OK (")
    });
    assert!(rescued, "{text}");
    assert!(text.contains("search.Search/Find: 200 calls"), "{text}");
    assert!(!text.contains(" 0 won"), "{text}");
}

//! What the tables say of lanes, and what a wrong one is answered.

use super::tests::{alone, load};

fn file(text: &str) -> Result<super::Settings, String> {
    let mut loaded = None;
    alone(|jail| {
        jail.create_file("omni-jev.toml", text).unwrap();
        loaded = Some(load(&[]));
    });
    loaded.unwrap()
}

/// Name, tokens and questions of each lane.
fn lanes(text: &str) -> Vec<(String, Option<u32>, Option<u32>)> {
    let settings = file(text).unwrap();
    let lanes = settings.lanes().into_iter();
    lanes
        .map(|(_, lane)| (lane.name, lane.limits.max_tokens, lane.limits.max_questions))
        .collect()
}

fn wrong(text: &str) -> String {
    file(text).unwrap_err()
}

const MAIN: &str = "[[worker]]\nname = \"main\"\n";

#[test]
fn one_worker_has_no_lanes_whatever_lives_beside_it() {
    for text in ["", MAIN, &format!("{MAIN}[[worker]]\nname = \"spare\"\n")] {
        let settings = file(text).unwrap();
        assert!(!settings.has_lanes(), "{text}");
        assert_eq!(settings.lanes().len(), 1);
        assert!(settings.supervises());
    }
}

#[test]
fn a_worker_that_takes_something_is_a_lane() {
    let with = |more: &str| lanes(&format!("{MAIN}[[worker]]\nname = \"quick\"\n{more}"));
    let main = ("main".to_owned(), None, None);
    let quick = |tokens, questions| vec![main.clone(), ("quick".to_owned(), tokens, questions)];
    assert_eq!(with("takes = \"short-single\""), quick(Some(128), Some(1)));
    assert_eq!(
        with("takes = \"short-single\"\nmax_tokens = 64"),
        quick(Some(64), Some(1))
    );
    assert_eq!(with("max_tokens = 256"), quick(Some(256), None));
    assert_eq!(with("takes = \"everything\""), quick(None, None));
    assert_eq!(with("takes = \"nothing\""), vec![main.clone()]);
    let settings = file(&format!(
        "{MAIN}[[worker]]\nname = \"q\"\nmax_questions = 1"
    ))
    .unwrap();
    assert!(settings.has_lanes());
}

#[test]
fn a_lane_table_names_a_server_that_is_not_supervised() {
    let text = "[[lane]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
                [[lane]]\nname = \"b\"\nurl = \"unix:/b\"\ntakes = \"short-single\"\n";
    let settings = file(text).unwrap();
    assert!(settings.has_lanes() && !settings.supervises());
    let expected = [
        ("a".to_owned(), None, None),
        ("b".to_owned(), Some(128), Some(1)),
    ];
    assert_eq!(lanes(text), expected);
}

#[test]
fn a_trace_needs_no_second_lane() {
    assert!(file("trace = \"t.jsonl\"").unwrap().has_lanes());
    let error = wrong("trace = \"t.jsonl\"\nbackend_url = \"http://h:1\"");
    assert!(error.starts_with("OMNI_JEV_TRACE: "), "{error}");
}

#[test]
fn a_wrong_lane_is_named_by_its_table_and_key() {
    let lane = "[[lane]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n";
    for (text, begins) in [
        (format!("{MAIN}takes = \"nothing\""), "worker[0].takes: "),
        (
            format!("{MAIN}[[worker]]\nname = \"b\"\ntakes = \"nothing\"\nmax_tokens = 1"),
            "worker[1].takes: ",
        ),
        (format!("{MAIN}takes = \"short\""), "worker[0].takes"),
        (format!("{MAIN}max_tokens = 0"), "worker[0].max_tokens"),
        (format!("{MAIN}helps = true"), "worker[0].helps"),
        ("[[lane]]\nurl = \"unix:/b\"".to_owned(), "lane[0].name: "),
        ("[[lane]]\nname = \"a\"".to_owned(), "lane[0].url: "),
        (format!("{lane}{lane}"), "lane[1].name: "),
        (format!("{lane}max_token = 1"), "lane[0].max_token in "),
        (format!("{lane}{MAIN}"), "[[lane]]: "),
        (
            format!("backend_url = \"http://h:1\"\n{lane}"),
            "OMNI_JEV_BACKEND_URL: ",
        ),
        (
            "[[lane]]\nname = \"a\"\nurl = \"http://me:secret@h\"".to_owned(),
            "lane[0].url",
        ),
    ] {
        let error = wrong(&text);
        assert!(error.starts_with(begins), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let many = (0..17).map(|n| format!("[[lane]]\nname = \"a{n}\"\nurl = \"unix:/b\"\n"));
    let error = wrong(&many.collect::<String>());
    assert!(error.contains("16 lanes"), "{error}");
}

#[test]
fn the_first_workers_flags_are_its_own_where_there_are_lanes() {
    alone(|jail| {
        jail.create_file(
            "omni-jev.toml",
            &format!("{MAIN}[[worker]]\nname = \"q\"\nmax_tokens = 9"),
        )
        .unwrap();
        let settings = load(&["--", "--model", "demo"]).unwrap();
        let args: Vec<usize> = settings
            .workers()
            .iter()
            .map(|it| it.args.0.len())
            .collect();
        assert_eq!(args, [2, 0]);
    });
}

//! The command line as transcripts: what is typed, what is printed, how it ends.
//!
//! `tests/cli/*.md` are run in a copy of the folder of the same name with `.in`. After a wanted change of the output,
//! `TRYCMD=overwrite cargo test --test cli` writes the new one: read the difference before committing it.

#[test]
fn transcripts_show_what_the_program_prints() {
    trycmd::TestCases::new().env("ASMPATCH_CACHE_DIR", "cache").env("NO_COLOR", "1").case("tests/cli/*.md");
}

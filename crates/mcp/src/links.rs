//! Resource links in results of tools: where the client finds what the answer leaves out.

use rmcp::model::{ContentBlock, ProtocolVersion, Resource};

use crate::{reports::ResultPage, resources};

/// Maximum number of links in an answer. The results name the jobs without a link.
const MAX_LINKS: usize = 8;

/// First revision of the protocol whose results may have resource links.
const FIRST_REVISION: ProtocolVersion = ProtocolVersion::V_2025_06_18;

/// Returns links to the results after a page, and to the outputs of which it has the beginning.
/// Returns none for a client of an older revision, which would not understand the answer.
pub(crate) fn of_page(
    action_id: &str,
    page: &ResultPage,
    revision: Option<&ProtocolVersion>,
) -> Vec<ContentBlock> {
    // Revisions are dates, which sort as texts.
    if revision.is_some_and(|revision| revision.as_str() < FIRST_REVISION.as_str()) {
        return Vec::new();
    }
    let more = page.cursor.as_ref().map(|cursor| (resources::results_uri(action_id, cursor), "results"));
    let cut = page.jobs.iter().filter(|job| job.stdout_bytes.is_some());
    let outputs = cut.filter_map(|job| Some((resources::stdout_uri(job.job_id.as_deref()?), "stdout")));
    let link = |(uri, name): (String, &str)| {
        ContentBlock::resource_link(Resource::new(uri, name).with_mime_type("text/plain"))
    };
    more.into_iter().chain(outputs).take(MAX_LINKS).map(link).collect()
}

#[cfg(test)]
mod tests {
    use rmcp::model::ProtocolVersion;

    use super::{MAX_LINKS, of_page};
    use crate::reports::{JobReport, ResultPage};

    #[test]
    fn page_links_to_what_it_leaves_out() {
        let whole = JobReport { stdout: "a".into(), ..JobReport::default() };
        let cut = JobReport { stdout_bytes: Some(9), job_id: Some("j".into()), ..whole.clone() };
        let jobs = vec![whole.clone(), cut.clone()];
        let page = ResultPage { jobs, cursor: Some("all:2".into()), forgotten: None };
        let uris = |page: &ResultPage, revision: &ProtocolVersion| {
            let links = of_page("a", page, Some(revision));
            links.iter().map(|link| link.as_resource_link().unwrap().uri.clone()).collect::<Vec<_>>()
        };
        let newest = ProtocolVersion::V_2026_07_28;
        assert_eq!(uris(&page, &newest), ["agx://action/a/results.jsonl?cursor=all:2", "agx://job/j/stdout"]);
        assert_eq!(uris(&page, &ProtocolVersion::V_2025_06_18).len(), 2);
        assert!(uris(&page, &ProtocolVersion::V_2025_03_26).is_empty());
        assert!(of_page("a", &ResultPage { jobs: vec![whole], ..ResultPage::default() }, None).is_empty());
        let many = ResultPage { jobs: vec![cut; MAX_LINKS + 1], ..ResultPage::default() };
        assert_eq!(uris(&many, &newest).len(), MAX_LINKS);
    }
}

//! Query parameters of lists.

use serde::Deserialize;
use serde_json::Value;

use crate::http::{
    extract::above_zero,
    response::{ApiError, HttpResult, pagination},
};

/// Default and maximum number of entries of a page.
const PAGE: usize = 50;
pub(super) const MAX_PAGE: usize = 200;
/// Maximum offset in a list, because agq reads all entries before the offset.
pub(super) const MAX_OFFSET: usize = 10_000;
/// Parameters of a list: its page, and filters.
#[derive(Debug, Default, Clone, Deserialize)]
pub(super) struct ListQuery {
    limit: Option<String>,
    per_page: Option<String>,
    page: Option<String>,
    pub(super) cursor: Option<String>,
    offset: Option<String>,
    pub(super) state: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) types: Option<String>,
    pub(super) queues: Option<String>,
}

fn number(name: &str, text: Option<&String>) -> HttpResult<Option<usize>> {
    let wrong = || ApiError::invalid(format!("{name} must be a whole number of at least 0"));
    text.map(|text| text.parse().map_err(|_| wrong())).transpose()
}

impl ListQuery {
    /// Returns the offset and the maximum number of entries.
    pub(super) fn range(&self) -> HttpResult<(usize, usize)> {
        let limit = self.page_size()?;
        let offset = match number("page", self.page.as_ref())? {
            Some(page) => page.saturating_sub(1).saturating_mul(limit),
            None => number("cursor", self.cursor.as_ref().or(self.offset.as_ref()))?.unwrap_or_default(),
        };
        if offset > MAX_OFFSET {
            let text = format!("only the first {MAX_OFFSET} entries of a list can be paged through");
            return Err(ApiError::invalid(text));
        }
        Ok((offset, limit))
    }

    /// Returns the maximum number of entries in a page.
    pub(super) fn page_size(&self) -> HttpResult<usize> {
        let limit = above_zero("limit", number("limit", self.limit.as_ref())?)?;
        let per_page = above_zero("per_page", number("per_page", self.per_page.as_ref())?)?;
        Ok(limit.or(per_page).unwrap_or(PAGE).min(MAX_PAGE))
    }

    /// Returns the entries of the page, and its `pagination` object.
    pub(super) fn page_of<T>(&self, entries: Vec<T>) -> HttpResult<(Vec<T>, Value)> {
        let (offset, limit) = self.range()?;
        let total = entries.len();
        let shown: Vec<T> = entries.into_iter().skip(offset).take(limit).collect();
        let has_more = offset.saturating_add(shown.len()) < total;
        let pagination = pagination(total as u64, offset, shown.len(), has_more);
        Ok((shown, pagination))
    }

    /// Returns the number of the page, from 1.
    pub(super) fn page_number(&self) -> usize {
        self.page.as_ref().and_then(|page| page.parse().ok()).unwrap_or(1).max(1)
    }

    /// Returns the words of a list with commas, or `None` without a filter.
    pub(super) fn words(text: Option<&String>) -> Option<Vec<String>> {
        text.map(|text| text.split(',').map(|word| word.trim().to_owned()).collect())
    }
}

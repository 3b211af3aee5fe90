//! Puts a house together on its store, with everything that goes on in it.

use std::sync::Arc;

use agenix_protocol::documents::PlanCache;

use crate::{
    app::{AbilitiesSeen, House, Reputation, Settings, StepsLeft},
    auth::audit_log::Audit,
    clock::Clock,
    commands::halting,
    herald, reaper,
    registry::{
        backups::Backups, challenges::Challenges, connections::Directory, event_log::EventLog,
        last_figures::LastFigures, output_handovers::HandingOn, pubsub::Hub, queue_limits::Bounds,
        throughput::Pace,
    },
    store::Store,
    waiters::{Matchmaker, Work},
};

/// The house on a store, and what is to go on in it beside the commands, until it is dropped.
pub(crate) fn furnish(
    store: Arc<dyn Store>,
    clock: Clock,
    audit: Audit,
    settings: Settings,
) -> (Arc<House>, Vec<Work>) {
    let (matchmaker, matching) = Matchmaker::new(&store, &clock, settings.start_timeout_ms);
    let started_at = clock.now();
    let house = Arc::new(House {
        matchmaker,
        store,
        started_at,
        clock,
        abilities: AbilitiesSeen::default(),
        plans: PlanCache::default(),
        reputation: Reputation::default(),
        steps_left: StepsLeft::default(),
        handing_on: HandingOn::default(),
        hub: Hub::default(),
        challenges: Challenges::default(),
        backups: Backups::default(),
        directory: Directory::default(),
        events: EventLog::new(started_at),
        pace: Pace::default(),
        last_figures: LastFigures::default(),
        bounds: Bounds::default(),
        audit,
        settings,
    });
    let mut works = Vec::from(matching);
    works.push(Box::pin(reaper::run(Arc::clone(&house))));
    works.push(Box::pin(herald::run(Arc::clone(&house))));
    works.push(Box::pin(halting::run(Arc::clone(&house))));
    (house, works)
}

//! The nodes that share one database: membership, leadership and notifications.

pub(crate) mod events;
pub(crate) mod nodes;
pub(crate) mod notify_bus;
pub(crate) mod outgoing_messages;

pub(crate) use self::{
    nodes::Nodes,
    notify_bus::{BusMessage, NotifyBus},
};

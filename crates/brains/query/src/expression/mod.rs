//! Placeholder, replaced by the change that brings the part.

//! The planner's claims: which plans it finds ([`golden`]), and that all of them answer alike ([`equivalence`], over
//! the little executor of [`simulation`]).

mod equivalence;
mod golden;
mod simulation;

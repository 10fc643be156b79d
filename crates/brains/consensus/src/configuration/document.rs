//! A configuration as MongoDB's document: read strictly, written with every field.

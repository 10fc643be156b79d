//! Every aggregation operator that has a name, in one sorted table: the entry point to the families' files.
//!
//! To add an operator: write its function in its family's file and add its row here.

use super::named::{Named, Signature};
use super::node::{Arguments, Call, Node, Scope};
use super::parse::Parser;
use super::value::Value;
use super::{
    arithmetic, array, bits, boolean, comparison, conditional, convert, date, hashed_key, in_place, object, reduction,
    regex, rounding, selection, set, size, sort_array, string, trigonometry, trim, variables,
};
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::fmt;

/// How many arguments an operator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arity {
    /// Any number.
    Any,
    /// Just so many.
    Exactly(usize),
    /// At least the first, at most the second.
    Between(usize, usize),
}

/// Computes an operator from its evaluated arguments, as many as its arity says.
pub(crate) type Function = fn(&'static str, &mut Arguments<'_, '_>) -> Result<Value>;

/// How an operator is written, and what carries it out.
pub(crate) enum Form {
    /// `{$operator: [a, b]}`, all arguments evaluated first.
    Positional(Arity, Function),
    /// `{$operator: {name: a, …}}`.
    Named(&'static Signature, fn(&Named<'_>) -> Result<Value>),
    /// Parses its argument itself.
    Special(fn(&mut Parser<'_>, &'static Operator, RawBsonRef<'_>) -> Result<Node>),
    /// Part of MongoDB's language that Baton does not have, with the reason.
    Refused(&'static str),
}

/// A row of the table.
pub(crate) struct Operator {
    pub name: &'static str,
    pub form: Form,
    /// What carries out a call that a special form parsed.
    pub call: Option<fn(&Named<'_>) -> Result<Value>>,
    /// Carries out a call whose array lies in the document, without a copy of the array; `None` where it cannot.
    pub in_place: Option<InPlaceFunction>,
}

/// See [`Operator::in_place`].
pub(crate) type InPlaceFunction = fn(&Call, &Scope<'_>) -> Result<Option<Value>>;

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn positional(name: &'static str, arity: Arity, function: Function) -> Operator {
    Operator { name, form: Form::Positional(arity, function), call: None, in_place: None }
}

impl Operator {
    const fn or_in_place(self, function: InPlaceFunction) -> Self {
        Self { in_place: Some(function), ..self }
    }
}

const fn any(name: &'static str, function: Function) -> Operator {
    positional(name, Arity::Any, function)
}

const fn one(name: &'static str, function: Function) -> Operator {
    positional(name, Arity::Exactly(1), function)
}

const fn two(name: &'static str, function: Function) -> Operator {
    positional(name, Arity::Exactly(2), function)
}

const fn three(name: &'static str, function: Function) -> Operator {
    positional(name, Arity::Exactly(3), function)
}

const fn between(name: &'static str, least: usize, most: usize, function: Function) -> Operator {
    positional(name, Arity::Between(least, most), function)
}

const fn named(
    name: &'static str,
    signature: &'static Signature,
    function: fn(&Named<'_>) -> Result<Value>,
) -> Operator {
    Operator { name, form: Form::Named(signature, function), call: None, in_place: None }
}

type Parse = fn(&mut Parser<'_>, &'static Operator, RawBsonRef<'_>) -> Result<Node>;

const fn special(name: &'static str, parse: Parse) -> Operator {
    Operator { name, form: Form::Special(parse), call: None, in_place: None }
}

const fn special_call(name: &'static str, parse: Parse, call: fn(&Named<'_>) -> Result<Value>) -> Operator {
    Operator { name, form: Form::Special(parse), call: Some(call), in_place: None }
}

const fn refused(name: &'static str, reason: &'static str) -> Operator {
    Operator { name, form: Form::Refused(reason), call: None, in_place: None }
}

const JAVASCRIPT: &str = "server-side JavaScript";
const PERCENTILES: &str = "approximate percentiles";

/// All operators, sorted by name.
pub(crate) static OPERATORS: &[Operator] = &[
    one("$abs", arithmetic::abs),
    refused("$accumulator", JAVASCRIPT),
    one("$acos", trigonometry::acos),
    one("$acosh", trigonometry::acosh),
    any("$add", arithmetic::add),
    one("$allElementsTrue", set::all_elements_true),
    special("$and", boolean::and),
    one("$anyElementTrue", set::any_element_true),
    two("$arrayElemAt", array::array_elem_at).or_in_place(in_place::elem_at),
    one("$arrayToObject", array::array_to_object),
    one("$asin", trigonometry::asin),
    one("$asinh", trigonometry::asinh),
    one("$atan", trigonometry::atan),
    two("$atan2", trigonometry::atan2),
    one("$atanh", trigonometry::atanh),
    any("$avg", reduction::avg),
    one("$binarySize", size::binary_size),
    any("$bitAnd", bits::and),
    one("$bitNot", bits::not),
    any("$bitOr", bits::or),
    any("$bitXor", bits::xor),
    one("$bsonSize", size::bson_size),
    one("$ceil", arithmetic::ceil),
    two("$cmp", comparison::cmp),
    any("$concat", string::concat),
    any("$concatArrays", array::concat_arrays),
    special("$cond", conditional::cond),
    special("$const", literal),
    named("$convert", &convert::CONVERT, convert::convert),
    one("$cos", trigonometry::cos),
    one("$cosh", trigonometry::cosh),
    named("$dateAdd", &date::steps::DATE_ADD, date::steps::add),
    named("$dateDiff", &date::steps::DATE_DIFF, date::steps::diff),
    special_call("$dateFromParts", date::parts::parse_from, date::parts::from_parts),
    named("$dateFromString", &date::text::FROM_STRING, date::text::from_string),
    named("$dateSubtract", &date::steps::DATE_ADD, date::steps::subtract),
    named("$dateToParts", &date::parts::TO_PARTS, date::parts::to_parts),
    named("$dateToString", &date::text::TO_STRING, date::text::to_string),
    named("$dateTrunc", &date::truncate::DATE_TRUNC, date::truncate::trunc),
    special_call("$dayOfMonth", date::fields::parse, date::fields::day_of_month),
    special_call("$dayOfWeek", date::fields::parse, date::fields::day_of_week),
    special_call("$dayOfYear", date::fields::parse, date::fields::day_of_year),
    one("$degreesToRadians", trigonometry::degrees_to_radians),
    two("$divide", arithmetic::divide),
    two("$eq", comparison::eq),
    one("$exp", arithmetic::exp),
    special("$filter", variables::parse_filter),
    one("$first", array::first).or_in_place(in_place::first),
    named("$firstN", &selection::SIGNATURE, selection::first),
    one("$floor", arithmetic::floor),
    refused("$function", JAVASCRIPT),
    special_call("$getField", object::parse_get, object::get),
    two("$gt", comparison::gt),
    two("$gte", comparison::gte),
    special_call("$hour", date::fields::parse, date::fields::hour),
    special("$ifNull", conditional::if_null),
    two("$in", array::is_in).or_in_place(in_place::is_in),
    between("$indexOfArray", 2, 4, array::index_of_array),
    between("$indexOfBytes", 2, 4, string::index_of_bytes),
    between("$indexOfCP", 2, 4, string::index_of_cp),
    one("$isArray", array::is_array).or_in_place(in_place::is_array),
    one("$isNumber", convert::is_number),
    special_call("$isoDayOfWeek", date::fields::parse, date::fields::iso_day_of_week),
    special_call("$isoWeek", date::fields::parse, date::fields::iso_week),
    special_call("$isoWeekYear", date::fields::parse, date::fields::iso_week_year),
    one("$last", array::last).or_in_place(in_place::last),
    named("$lastN", &selection::SIGNATURE, selection::last),
    special("$let", variables::parse_let),
    special("$literal", literal),
    one("$ln", arithmetic::ln),
    two("$log", arithmetic::log),
    one("$log10", arithmetic::log10),
    two("$lt", comparison::lt),
    two("$lte", comparison::lte),
    named("$ltrim", &trim::TRIM, trim::left),
    special("$map", variables::parse_map),
    any("$max", reduction::max),
    named("$maxN", &selection::SIGNATURE, selection::greatest),
    refused("$median", PERCENTILES),
    any("$mergeObjects", reduction::merge_objects),
    refused("$meta", "metadata of text and other searches"),
    special_call("$millisecond", date::fields::parse, date::fields::millisecond),
    any("$min", reduction::min),
    named("$minN", &selection::SIGNATURE, selection::least),
    special_call("$minute", date::fields::parse, date::fields::minute),
    two("$mod", arithmetic::modulo),
    special_call("$month", date::fields::parse, date::fields::month),
    any("$multiply", arithmetic::multiply),
    two("$ne", comparison::ne),
    one("$not", boolean::not),
    one("$objectToArray", array::object_to_array),
    special("$or", boolean::or),
    refused("$percentile", PERCENTILES),
    two("$pow", arithmetic::pow),
    one("$radiansToDegrees", trigonometry::radians_to_degrees),
    special("$rand", rand),
    between("$range", 2, 3, array::range),
    special("$reduce", variables::parse_reduce),
    special("$regexFind", regex::parse),
    special("$regexFindAll", regex::parse),
    special("$regexMatch", regex::parse),
    named("$replaceAll", &string::REPLACE, string::replace_all),
    named("$replaceOne", &string::REPLACE, string::replace_one),
    one("$reverseArray", array::reverse_array),
    between("$round", 1, 2, rounding::round),
    named("$rtrim", &trim::TRIM, trim::right),
    special_call("$second", date::fields::parse, date::fields::second),
    two("$setDifference", set::difference),
    any("$setEquals", set::equals),
    special_call("$setField", object::parse_set, object::set),
    any("$setIntersection", set::intersection),
    two("$setIsSubset", set::is_subset),
    any("$setUnion", set::union),
    one("$sin", trigonometry::sin),
    one("$sinh", trigonometry::sinh),
    one("$size", array::size).or_in_place(in_place::size),
    between("$slice", 2, 3, array::slice),
    special("$sortArray", sort_array::parse),
    two("$split", string::split),
    one("$sqrt", arithmetic::sqrt),
    any("$stdDevPop", reduction::std_dev_pop),
    any("$stdDevSamp", reduction::std_dev_samp),
    one("$strLenBytes", string::str_len_bytes),
    one("$strLenCP", string::str_len_cp),
    two("$strcasecmp", string::strcasecmp),
    three("$substrBytes", string::substr_bytes),
    three("$substrCP", string::substr_cp),
    two("$subtract", arithmetic::subtract),
    any("$sum", reduction::sum),
    special("$switch", conditional::parse_switch),
    one("$tan", trigonometry::tan),
    one("$tanh", trigonometry::tanh),
    one("$toBool", convert::to_bool),
    one("$toDate", convert::to_date),
    one("$toDecimal", convert::to_decimal),
    one("$toDouble", convert::to_double),
    one("$toHashedIndexKey", hashed_key::to_hashed_index_key),
    one("$toInt", convert::to_int),
    one("$toLong", convert::to_long),
    one("$toLower", string::to_lower),
    one("$toObjectId", convert::to_object_id),
    one("$toString", convert::to_string),
    one("$toUpper", string::to_upper),
    named("$trim", &trim::TRIM, trim::both),
    between("$trunc", 1, 2, rounding::trunc),
    one("$tsIncrement", date::fields::ts_increment),
    one("$tsSecond", date::fields::ts_second),
    one("$type", convert::type_of),
    special_call("$unsetField", object::parse_unset, object::unset),
    special_call("$week", date::fields::parse, date::fields::week),
    refused("$where", JAVASCRIPT),
    special_call("$year", date::fields::parse, date::fields::year),
    special("$zip", array::parse_zip),
];

/// The operator of that name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    // As in MongoDB, the older name is read and never shown.
    let name = if name == "$substr" { "$substrBytes" } else { name };
    OPERATORS.binary_search_by_key(&name, |operator| operator.name).ok().map(|row| &OPERATORS[row])
}

/// `{$literal: a}`: `a` as it stands.
fn literal(_: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    Ok(Node::Constant(Some(super::node::own(raw)?)))
}

/// `{$rand: {}}`: at least 0 and less than 1.
fn rand(_: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    match raw {
        RawBsonRef::Document(document) if document.is_empty() => Ok(Node::Rand),
        RawBsonRef::Array(array) if array.is_empty() => Ok(Node::Rand),
        RawBsonRef::Document(_) | RawBsonRef::Array(_) => {
            Err(Error::location(3_040_501, "$rand does not currently accept arguments"))
        }
        _ => Err(Error::location(10065, "invalid parameter: expected an object ($rand)")),
    }
}

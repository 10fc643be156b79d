//! What `2dsphere` and `2d` indexes refuse in a document, with MongoDB's codes: 16755 for what lies on no sphere; 13026, 13027,
//! 13068 and 16804 for what is no pair on a plane. Source: MongoDB manual, "GeoJSON Objects", "Legacy Coordinate Pairs".
//!
//! Not here: what a geometry covers, and with it the faults that only show when it is drawn (rings that cross themselves, holes
//! outside of their shell): MongoDB refuses those too.

use crate::path::{LeafArrays, Path, visit_with};
use crate::{Number, show};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawArray, RawBsonRef, RawDocument};
use std::ops::ControlFlow;

/// Names that a geometry's `crs` may have; the last is for queries alone.
const CRS_NAMES: [&str; 3] =
    ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326", "urn:x-mongodb:crs:strictwinding:EPSG:4326"];

/// The values at the path's end: arrays in the middle are entered, one at the end is a value.
fn values<'a>(document: &'a RawDocument, path: &Path) -> Result<Vec<RawBsonRef<'a>>> {
    let mut values = Vec::new();
    let _all = visit_with(document.into(), path, LeafArrays::Keep, &mut |found| {
        values.extend(found.value);
        ControlFlow::Continue(())
    })?;
    Ok(values)
}

/// Checks what a `2dsphere` index on `path` finds in a document. Nothing, `null` and what is empty are fine.
///
/// # Errors
/// 16755 for what is no geometry, or lies beyond the poles.
pub fn check_on_sphere(document: &RawDocument, path: &Path) -> Result<()> {
    let found = values(document, path)?;
    if let [only] = found.as_slice() {
        let is_empty = match only {
            RawBsonRef::Null | RawBsonRef::Undefined => true,
            RawBsonRef::Document(inner) => inner.is_empty(),
            RawBsonRef::Array(inner) => inner.is_empty(),
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
    }
    for value in found {
        stored_geometry(path, value).map_err(|why| {
            let message = format!("Can't extract geo keys: {}  {why}", show::document(document));
            Error::new(ErrorCode(16755), message)
        })?;
    }
    Ok(())
}

/// Checks what a `2d` index on `path` finds in a document. What is no array and no document is overlooked.
///
/// # Errors
/// 16804, 13068, 13026 for what is no pair of numbers, 13027 for one outside of `min` and `max`.
pub fn check_on_plane(document: &RawDocument, path: &Path, min: f64, max: f64) -> Result<()> {
    for value in values(document, path)? {
        let Some(members) = members(value)? else { continue };
        let Some(first) = members.first() else { continue };
        if Number::from_raw(*first).is_some() {
            check_pair(document, &members, min, max)?;
            continue;
        }
        for member in &members {
            let Some(pair) = self::members(*member)? else {
                let message = "location object expected, location array not in correct format";
                return Err(Error::new(ErrorCode(16804), message));
            };
            if !pair.is_empty() {
                check_pair(document, &pair, min, max)?;
            }
        }
    }
    Ok(())
}

fn check_pair(document: &RawDocument, members: &[RawBsonRef<'_>], min: f64, max: f64) -> Result<()> {
    let refused = |code: i32, why: String| {
        Err(Error::new(ErrorCode(code), format!("{why} :: caused by :: {}", show::document(document))))
    };
    let [x, y, ..] = members else { return refused(13068, "geo field only has 1 element".into()) };
    let (Some(x), Some(y)) = (Number::from_raw(*x), Number::from_raw(*y)) else {
        return refused(13026, "geo values must be 'legacy coordinate pairs' for 2d indexes".into());
    };
    if [x, y].iter().any(|n| !(min..=max).contains(&n.to_f64())) {
        return refused(13027, format!("point not in interval of [ {min}, {max} ]"));
    }
    Ok(())
}

/// The members of an array or a document; `None` for anything else.
fn members(value: RawBsonRef<'_>) -> Result<Option<Vec<RawBsonRef<'_>>>> {
    Ok(match value {
        RawBsonRef::Array(array) => Some(array.into_iter().collect::<Result<_, _>>()?),
        RawBsonRef::Document(document) => {
            Some(document.iter().map(|element| element.map(|(_, value)| value)).collect::<Result<_, _>>()?)
        }
        _ => None,
    })
}

/// Why a value is no geometry.
type Why = String;

fn stored_geometry(path: &Path, value: RawBsonRef<'_>) -> Result<(), Why> {
    match value {
        RawBsonRef::Document(document) => geo_json(document, false).or_else(|why| {
            // `{x: 1, y: 2}`.
            legacy_point(value).map_err(|_| why)
        }),
        RawBsonRef::Array(_) => legacy_point(value),
        other => Err(format!("geo element must be an array or object: {}: {}", path.as_str(), text(other))),
    }
}

fn text(value: RawBsonRef<'_>) -> String {
    bson::Bson::try_from(value).map_or_else(|_| String::new(), |value| value.to_string())
}

fn point(value: RawBsonRef<'_>) -> Result<(f64, f64), Why> {
    let numbers = members(value).ok().flatten().unwrap_or_default();
    let number = |at: usize| {
        let number = numbers.get(at).and_then(|value| Number::from_raw(*value)).map(Number::to_f64);
        number.ok_or_else(|| Why::from("Point must only contain numeric elements"))
    };
    let (x, y) = (number(0)?, number(1)?);
    if x.is_finite() && y.is_finite() { Ok((x, y)) } else { Err("Point coordinates must be finite numbers".into()) }
}

fn is_on_earth((lng, lat): (f64, f64)) -> bool {
    (-180.0..=180.0).contains(&lng) && (-90.0..=90.0).contains(&lat)
}

fn legacy_point(value: RawBsonRef<'_>) -> Result<(), Why> {
    match is_on_earth(point(value)?) {
        true => Ok(()),
        false => Err(format!("can't project geometry into spherical CRS: {}", text(value))),
    }
}

fn geo_json(document: &RawDocument, is_member: bool) -> Result<(), Why> {
    let kind = document.get_str("type").map_err(|_| format!("unknown GeoJSON type: {}", show::document(document)))?;
    if kind == "GeometryCollection" {
        if is_member {
            return Err(format!("GeometryCollections cannot be nested: {}", show::document(document)));
        }
        return each(document, "geometries", kind, &|member| match member {
            RawBsonRef::Document(member) => geo_json(member, true),
            other => Err(format!("Element {} of \"geometries\" is not an object", text(other))),
        });
    }
    check_crs(document)?;
    match kind {
        "Point" => match document.get("coordinates") {
            Ok(Some(value @ RawBsonRef::Array(_))) => coordinate(value).map(|_| ()),
            _ => Err("GeoJSON coordinates must be an array".into()),
        },
        "MultiPoint" => each(document, "coordinates", kind, &|value| coordinate(value).map(|_| ())),
        "LineString" => match document.get_array("coordinates") {
            Ok(line) => line_string(line),
            Err(_) => Err("GeoJSON LineString coordinates must be an array of coordinates".into()),
        },
        "MultiLineString" => each(document, "coordinates", kind, &|value| nested(value, line_string)),
        "Polygon" => match document.get_array("coordinates") {
            Ok(rings) => polygon(rings),
            Err(_) => Err("Polygon coordinates must be an array".into()),
        },
        "MultiPolygon" => each(document, "coordinates", kind, &|value| nested(value, polygon)),
        _ => Err(format!("unknown GeoJSON type: {}", show::document(document))),
    }
}

fn check_crs(document: &RawDocument) -> Result<(), Why> {
    let Some(crs) = document.get("crs").ok().flatten() else { return Ok(()) };
    let RawBsonRef::Document(crs) = crs else { return Err("GeoJSON CRS must be an object".into()) };
    let name = crs.get_document("properties").ok().and_then(|properties| properties.get_str("name").ok());
    match name.filter(|_| matches!(crs.get_str("type"), Ok("name"))) {
        None => {
            Err("GeoJSON CRS must have field \"properties\" with the string \"name\", and the type \"name\"".into())
        }
        Some(name) if name == CRS_NAMES[2] => Err("can't index geometry with strict winding order".into()),
        Some(name) if CRS_NAMES.contains(&name) => Ok(()),
        Some(name) => Err(format!("Unknown CRS name: {name}")),
    }
}

/// Checks every member of an array that must have one.
fn each(
    document: &RawDocument,
    field: &str,
    kind: &str,
    check: &dyn Fn(RawBsonRef<'_>) -> Result<(), Why>,
) -> Result<(), Why> {
    let Ok(members) = document.get_array(field) else { return Err(format!("{kind} {field} must be an array")) };
    if members.is_empty() {
        return Err(format!("{kind} {field} must have at least 1 element"));
    }
    members.into_iter().filter_map(Result::ok).try_for_each(check)
}

fn nested(value: RawBsonRef<'_>, check: fn(&RawArray) -> Result<(), Why>) -> Result<(), Why> {
    match value {
        RawBsonRef::Array(array) => check(array),
        other => Err(format!("GeoJSON coordinates must be an array, but have {}", text(other))),
    }
}

fn coordinate(value: RawBsonRef<'_>) -> Result<(f64, f64), Why> {
    let RawBsonRef::Array(_) = value else { return Err("GeoJSON coordinates must be an array".into()) };
    let (lng, lat) = point(value)?;
    match is_on_earth((lng, lat)) {
        true => Ok((lng, lat)),
        false => Err(format!("Longitude/latitude is out of bounds, lng: {lng} lat: {lat}")),
    }
}

/// The points of a line, without those that repeat the one before.
fn points(line: &RawArray) -> Result<Vec<(f64, f64)>, Why> {
    let mut points = line.into_iter().filter_map(Result::ok).map(coordinate).collect::<Result<Vec<_>, _>>()?;
    points.dedup();
    Ok(points)
}

fn line_string(line: &RawArray) -> Result<(), Why> {
    match points(line)?.len() {
        0 | 1 => Err("GeoJSON LineString must have at least 2 vertices".into()),
        _ => Ok(()),
    }
}

fn polygon(rings: &RawArray) -> Result<(), Why> {
    if rings.is_empty() {
        return Err("Polygon has no loops.".into());
    }
    rings.into_iter().filter_map(Result::ok).try_for_each(|ring| {
        let RawBsonRef::Array(ring) = ring else { return Err("Polygon coordinates must be an array".into()) };
        let points = points(ring)?;
        match points.as_slice() {
            [] => Err("Loop has no vertices".into()),
            [first, .., last] if first != last => {
                Err(format!("Loop is not closed, first vertex does not equal last vertex: {first:?}, {last:?}"))
            }
            few if few.len() < 4 => Err(format!(
                "Loop must have at least 3 different vertices, {} unique vertices were provided",
                few.len().saturating_sub(1).max(1)
            )),
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, RawDocumentBuf, doc};

    fn raw(document: Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&document).unwrap()
    }

    fn on_sphere(document: Document) -> Option<i32> {
        check_on_sphere(&raw(document), &Path::parse("loc")).err().map(|error| error.code.0)
    }

    fn on_plane(document: Document) -> Option<i32> {
        check_on_plane(&raw(document), &Path::parse("loc"), -180.0, 180.0).err().map(|error| error.code.0)
    }

    #[test]
    fn what_lies_on_the_earth_is_taken_and_what_is_not_there_too() {
        let ring = doc! { "type": "Polygon", "coordinates": [ [ [0, 0], [3, 6], [6, 1], [0, 0] ] ] };
        for document in [
            doc! {},
            doc! { "loc": null },
            doc! { "loc": [] },
            doc! { "loc": {} },
            doc! { "loc": [1, 2] },
            doc! { "loc": [1.5, -90, 7] },
            doc! { "loc": { "lng": 1, "lat": 2 } },
            doc! { "loc": { "x": 1, "y": 2, "type": "Point" } },
            doc! { "loc": { "type": "Point", "coordinates": [180, 90] } },
            doc! { "loc": { "type": "Point", "coordinates": [1, 2, 3] } },
            doc! { "loc": { "type": "LineString", "coordinates": [ [0, 0], [1, 1] ] } },
            doc! { "loc": { "type": "MultiPoint", "coordinates": [ [0, 0] ] } },
            doc! { "loc": ring.clone() },
            doc! { "loc": { "type": "GeometryCollection", "geometries": [ring] } },
        ] {
            assert_eq!(on_sphere(document.clone()), None, "{document}");
        }
    }

    #[test]
    fn what_is_no_geometry_on_the_earth_is_refused() {
        let crs = |name: &str| doc! { "type": "name", "properties": { "name": name } };
        for loc in [
            bson::bson!("abc"),
            bson::bson!(7),
            bson::bson!([1]),
            bson::bson!([1, "a"]),
            bson::bson!([200, 0]),
            bson::bson!([[1, 2], [3, 4]]),
            bson::bson!({ "type": "Point" }),
            bson::bson!({ "type": "Point", "coordinates": [1, 91] }),
            bson::bson!({ "type": "Point", "coordinates": [f64::NAN, 1] }),
            bson::bson!({ "type": "Circle", "coordinates": [1, 1] }),
            bson::bson!({ "type": "LineString", "coordinates": [[0, 0], [0, 0]] }),
            bson::bson!({ "type": "Polygon", "coordinates": [] }),
            bson::bson!({ "type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0]]] }),
            bson::bson!({ "type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]] }),
            bson::bson!({ "type": "MultiPoint", "coordinates": [] }),
            bson::bson!({ "type": "Point", "coordinates": [1, 1], "crs": crs("EPSG:1") }),
            bson::bson!({ "type": "GeometryCollection", "geometries": [{ "type": "GeometryCollection" }] }),
        ] {
            assert_eq!(on_sphere(doc! { "loc": loc.clone() }), Some(16755), "{loc}");
        }
        // One of several.
        let path = Path::parse("a.loc");
        let several = raw(doc! { "a": [ { "loc": [1, 1] }, { "loc": null } ] });
        assert!(check_on_sphere(&several, &path).is_err());
        assert!(check_on_sphere(&raw(doc! { "a": [ { "loc": [1, 1] }, {} ] }), &path).is_ok());
    }

    #[test]
    fn a_plane_takes_pairs_within_its_bounds() {
        for (loc, code) in [
            (bson::bson!("abc"), None),
            (bson::bson!(null), None),
            (bson::bson!([]), None),
            (bson::bson!([1, 2]), None),
            (bson::bson!({ "x": 1, "y": -180 }), None),
            (bson::bson!([[1, 2], [3, 4]]), None),
            (bson::bson!([1]), Some(13068)),
            (bson::bson!([1, "a"]), Some(13026)),
            (bson::bson!([1, 181]), Some(13027)),
            (bson::bson!([f64::NAN, 1]), Some(13027)),
            (bson::bson!(["a", "b"]), Some(16804)),
            (bson::bson!({ "type": "Point", "coordinates": [1, 2] }), Some(16804)),
        ] {
            assert_eq!(on_plane(doc! { "loc": loc.clone() }), code, "{loc}");
        }
    }
}

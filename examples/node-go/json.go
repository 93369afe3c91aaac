package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is the chapters "JSON" and "Envelopes" of spec/scripts.py. Go's encoding/json loses the order of keys and
// accepts duplicate keys and lone surrogates, so JSON is read by hand.

const maxIntegerDigits = 640

// Object is a JSON object with its keys in the order given. Other values are nil, bool, *big.Int, string and []any.
type Object struct {
	keys   []string
	values map[string]any
}

var errNoJSON = errors.New("no strict JSON")

type jsonReader struct {
	text   string
	levels int
}

// parseJSON reads strict JSON: no duplicate keys, lone surrogates, fractions, exponents, -0, long numbers, or more than
// this many levels.
func parseJSON(text Bytes, levels int) (value any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			if problem != errNoJSON {
				panic(problem)
			}
			err = errNoJSON
		}
	}()
	r := &jsonReader{string(text), levels}
	r.need(utf8.ValidString(r.text))
	value = r.value()
	r.space()
	r.need(r.text == "")
	return value, nil
}

func (r *jsonReader) need(condition bool) {
	if !condition {
		panic(errNoJSON)
	}
}

func (r *jsonReader) space() { r.text = strings.TrimLeft(r.text, " \t\n\r") }

// has skips white space and then a sign, if it is there.
func (r *jsonReader) has(sign string) bool {
	r.space()
	rest, found := strings.CutPrefix(r.text, sign)
	r.text = rest
	return found
}

func (r *jsonReader) value() any {
	for _, word := range []struct {
		text  string
		value any
	}{{"null", nil}, {"true", true}, {"false", false}} {
		if r.has(word.text) {
			return word.value
		}
	}
	switch {
	case r.has(`"`):
		return r.string()
	case r.has("["):
		items := []any{}
		r.each("]", func() { items = append(items, r.value()) })
		return items
	case r.has("{"):
		found := &Object{values: map[string]any{}}
		r.each("}", func() {
			r.need(r.has(`"`))
			key := r.string()
			_, isThere := found.values[key]
			r.need(!isThere && r.has(":"))
			found.values[key] = r.value()
			found.keys = append(found.keys, key)
		})
		return found
	}
	return r.integer()
}

// each reads items that are separated by commas, up to the closing sign.
func (r *jsonReader) each(closing string, item func()) {
	r.levels--
	r.need(r.levels >= 0)
	for isFirst := true; !r.has(closing); isFirst = false {
		r.need(isFirst || r.has(","))
		item()
	}
	r.levels++
}

func (r *jsonReader) integer() *big.Int {
	digits := strings.TrimPrefix(r.text, "-")
	end := len(digits) - len(strings.TrimLeft(digits, "0123456789"))
	length := len(r.text) - len(digits) + end
	text := r.text[:length]
	r.need(end > 0 && (digits[0] != '0' || end == 1) && text != "-0" && length <= maxIntegerDigits)
	r.text = r.text[length:]
	r.need(r.text == "" || !strings.ContainsRune(".eE", rune(r.text[0])))
	number, _ := new(big.Int).SetString(text, 10)
	return number
}

// string reads a text behind its opening quote.
func (r *jsonReader) string() string {
	var out strings.Builder
	for {
		end := strings.IndexAny(r.text, `"\`)
		r.need(end >= 0)
		for _, b := range []byte(r.text[:end]) {
			r.need(b >= 0x20)
		}
		out.WriteString(r.text[:end])
		sign := r.text[end]
		r.text = r.text[end+1:]
		if sign == '"' {
			return out.String()
		}
		r.need(r.text != "")
		escape := r.text[0]
		r.text = r.text[1:]
		if escape == 'u' {
			out.WriteRune(r.character())
			continue
		}
		place := strings.IndexByte(`"\/bfnrt`, escape)
		r.need(place >= 0)
		out.WriteByte("\"\\/\b\f\n\r\t"[place])
	}
}

// character reads the four digits of an escape, and of a second one if both are surrogates.
func (r *jsonReader) character() rune {
	first := r.unit()
	if !utf16.IsSurrogate(first) {
		return first
	}
	rest, isPair := strings.CutPrefix(r.text, `\u`)
	r.need(isPair)
	r.text = rest
	both := utf16.DecodeRune(first, r.unit())
	r.need(both != utf8.RuneError)
	return both
}

func (r *jsonReader) unit() rune {
	r.need(len(r.text) >= 4 && isHex(r.text[:4]))
	unit, _ := strconv.ParseUint(r.text[:4], 16, 16)
	r.text = r.text[4:]
	return rune(unit)
}

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdefABCDEF") == "" }

// jsonText is a value as JSON in ASCII: no white space, keys in the order given, all beyond ~ escaped.
func jsonText(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case *big.Int:
		return v.String()
	case string:
		return quoted(v)
	case []any:
		parts := []string{}
		for _, item := range v {
			parts = append(parts, jsonText(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case *Object:
		parts := []string{}
		for _, key := range v.keys {
			parts = append(parts, quoted(key)+":"+jsonText(v.values[key]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	panic(fmt.Sprintf("no JSON of %T", value))
}

func quoted(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range text {
		place := strings.IndexRune("\"\\\b\f\n\r\t", c)
		switch {
		case place >= 0:
			out.WriteString(`\` + `"\bfnrt`[place:place+1])
		case c >= ' ' && c <= '~':
			out.WriteRune(c)
		default:
			for _, unit := range utf16.Encode([]rune{c}) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
	}
	return out.String() + `"`
}

// openEnvelope returns the handler that a fire calls, and its payload: those of an envelope, if the payload is one.
func openEnvelope(handler string, payload Bytes) (string, Bytes) {
	value, err := parseJSON(payload, 1)
	envelope, ok := value.(*Object)
	if err != nil || !ok || len(envelope.keys) != 2 {
		return handler, payload
	}
	named, hasName := envelope.values["_handler"].(string)
	packed, hasPayload := envelope.values["_payload"].(string)
	if !hasName || !hasPayload || !isName(named) || strings.ContainsAny(packed, "\r\n") {
		return handler, payload
	}
	inner, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return handler, payload
	}
	return named, Bytes(inner)
}

// isName says whether a text names a handler: 1 to 256 bytes of UTF-8.
func isName(text string) bool { return text != "" && len(text) <= 256 }

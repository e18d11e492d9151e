package queue

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"strings"

	"flashsale/model"
)

// A message is one entry as text: the format version, then the fields of the entry, separated by single spaces. The idempotency
// key comes last, so that it may contain spaces. The sale is not a field: its id is the first part of the order id.
const (
	version = "3"
	fields  = 10
	// noCampaign stands for the campaign of a sale that has none.
	noCampaign = "-"
	// maxMessage is far above the longest message that encode produces, which has some hundreds of bytes.
	maxMessage = 4 << 10
)

// errUnreadable means that a message has another format version, or was not written by encode.
var errUnreadable = errors.New("not an entry")

func encode(e model.Entry) []byte {
	return []byte(strings.Join([]string{
		version, e.StreamID, strconv.FormatInt(e.Epoch, 10), e.Instance,
		e.ID, cmp.Or(e.CampaignID, noCampaign), strconv.Itoa(e.GateRef().Shards), e.UserID, strconv.Itoa(e.Quantity), e.IdempotencyKey,
	}, " "))
}

// decode accepts exactly what encode produces from entries that the gate may have admitted, or returns errUnreadable.
func decode(message []byte) (model.Entry, error) {
	if len(message) > maxMessage {
		return model.Entry{}, errUnreadable
	}
	field := strings.SplitN(string(message), " ", fields)
	if len(field) < fields || !validStreamID(field[1]) {
		return model.Entry{}, errUnreadable
	}
	// The errors are ignored: an invalid number parses as 0 or as a limit of its type, so encode(e) below differs from message.
	epoch, _ := strconv.ParseInt(field[2], 10, 64)
	shards, _ := strconv.Atoi(field[6])
	quantity, _ := strconv.Atoi(field[8])
	e := model.Entry{
		Attempt: model.Attempt{
			ID: field[4], SaleID: model.SaleOf(field[4]), UserID: field[7], Quantity: quantity,
			IdempotencyKey: field[9], Shards: shards,
		},
		StreamID: field[1], Epoch: epoch, Instance: field[3],
	}
	if field[5] != noCampaign {
		e.CampaignID = field[5]
	}
	if !e.Valid() || shards > model.MaxShards || !bytes.Equal(encode(e), message) {
		return model.Entry{}, errUnreadable
	}
	return e, nil
}

// validStreamID reports whether s is a stream id. Redis rejects a whole call if one of its ids is invalid.
func validStreamID(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	_, errMs := strconv.ParseUint(ms, 10, 64)
	_, errSeq := strconv.ParseUint(seq, 10, 64)
	return ok && errMs == nil && errSeq == nil
}

package queue

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"strings"

	"flashsale/model"
)

// A message is one entry as text: the format version and the fields of the entry, separated by single spaces. The idempotency
// key comes last, since it may contain spaces. The sale's id is the first part of the order's id.
const (
	version    = "3"
	fields     = 10
	noCampaign = "-"
	// maxMessage is far above the length of a message of encode, which has some hundreds of bytes.
	maxMessage = 4 << 10
)

// errUnreadable means that a message was not written by encode, or has another format version.
var errUnreadable = errors.New("not an entry")

func encode(e model.Entry) []byte {
	return []byte(strings.Join([]string{
		version, e.StreamID, strconv.FormatInt(e.Epoch, 10), e.Instance,
		e.ID, cmp.Or(e.CampaignID, noCampaign), strconv.Itoa(e.GateRef().Shards), e.UserID, strconv.Itoa(e.Quantity), e.IdempotencyKey,
	}, " "))
}

// decode accepts what encode makes of valid entries. For other messages it returns errUnreadable.
func decode(message []byte) (model.Entry, error) {
	if len(message) > maxMessage {
		return model.Entry{}, errUnreadable
	}
	field := strings.SplitN(string(message), " ", fields)
	if len(field) < fields || !validStreamID(field[1]) {
		return model.Entry{}, errUnreadable
	}
	// An invalid number parses as another number, so encode(e) below differs from the message.
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

// validStreamID reports whether s is a stream id. Redis rejects a whole call with an invalid one.
func validStreamID(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	_, errMs := strconv.ParseUint(ms, 10, 64)
	_, errSeq := strconv.ParseUint(seq, 10, 64)
	return ok && errMs == nil && errSeq == nil
}

package queue

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"flashsale/model"
)

// A message is one entry as text: the version, then its parts with a space between two. A request key may have spaces
// itself, so it stands last. The sale is the first part of the order's id.
const (
	version = "1"
	parts   = 10
	// maxMessage is far above the longest message of ours: a request key has at most hundreds of bytes.
	maxMessage = 4 << 10
)

// errUnreadable: not a message of this version, or not one that we have written.
var errUnreadable = errors.New("not an entry")

func encode(e model.Entry) []byte {
	return []byte(strings.Join([]string{
		version, e.StreamID, strconv.FormatInt(e.Deliveries, 10), strconv.FormatInt(e.Epoch, 10), e.Instance,
		e.ID, e.UserID, strconv.Itoa(e.Quantity), e.RequestHash, e.RequestKey,
	}, " "))
}

// decode takes exactly what encode makes of an entry that the gate may have admitted, else it gives errUnreadable.
func decode(message []byte) (model.Entry, error) {
	if len(message) > maxMessage {
		return model.Entry{}, errUnreadable
	}
	part := strings.SplitN(string(message), " ", parts)
	if len(part) < parts || !validStreamID(part[1]) {
		return model.Entry{}, errUnreadable
	}
	// A number that is none becomes 0, and the text is then not what that makes.
	deliveries, _ := strconv.ParseInt(part[2], 10, 64)
	epoch, _ := strconv.ParseInt(part[3], 10, 64)
	quantity, _ := strconv.Atoi(part[7])
	e := model.Entry{
		Attempt: model.Attempt{
			ID: part[5], SaleID: model.SaleOf(part[5]), UserID: part[6], Quantity: quantity,
			RequestHash: part[8], RequestKey: part[9],
		},
		StreamID: part[1], Deliveries: deliveries, Epoch: epoch, Instance: part[4],
	}
	if !e.Valid() || !bytes.Equal(encode(e), message) {
		return model.Entry{}, errUnreadable
	}
	return e, nil
}

// validStreamID: Redis would refuse all ids of a call for one that it can't read.
func validStreamID(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	_, errMs := strconv.ParseUint(ms, 10, 64)
	_, errSeq := strconv.ParseUint(seq, 10, 64)
	return ok && errMs == nil && errSeq == nil
}

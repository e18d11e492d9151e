package app

import (
	"net/http"

	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/service"
)

// What the tests of this folder, which are a package of their own, read and change of an instance.

var (
	LabStores = labStores
	NewLog    = newLog
)

func (a *App) Address() string            { return a.listener.Addr().String() }
func (a *App) Gate() *gate.Gate           { return a.gate }
func (a *App) Gates() *service.Gates      { return a.gates }
func (a *App) Handler() http.Handler      { return a.server.Handler }
func (a *App) Instance() string           { return a.instance }
func (a *App) OpenStreams() int           { return a.streams.Open() }
func (a *App) Settings() *config.Settings { return &a.settings }

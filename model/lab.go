package model

// Lesson describes a strategy.
type Lesson struct {
	How    string `json:"how"`    // what it does
	Right  string `json:"right"`  // when it is correct, and why
	Breaks string `json:"breaks"` // when it fails
	Costs  string `json:"costs"`
}

// LabPlan is a comparison of strategies on the same load.
type LabPlan struct {
	Strategies  []string `json:"strategies" default:"all" help:"Strategies to compare, comma-separated, or all."`
	Buyers      int      `json:"buyers" default:"2000" help:"Buyers, each of whom tries to buy one unit once."`
	Stock       int      `json:"stock" default:"200" help:"Units on sale."`
	Concurrency int      `json:"concurrency" default:"50" help:"Buyers who try at the same time."`
	Instances   int      `json:"-" default:"1" help:"Instances of the engine that the buyers are spread over."`
	Kill        bool     `json:"-" help:"Kill the last instance when half of the stock is sold."`
	Seed        uint64   `json:"-" default:"1" help:"Determines the order of the buyers; the same seed gives the same order."`
}

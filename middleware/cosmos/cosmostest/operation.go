package cosmostest

import "slices"

// Operation is what a request does, as the service understands it.
type Operation string

// The operations the account knows. Scripts are stored procedures, triggers and user defined functions.
const (
	ReadAccount        Operation = "ReadAccount"
	CreateDatabase     Operation = "CreateDatabase"
	ReadDatabase       Operation = "ReadDatabase"
	DeleteDatabase     Operation = "DeleteDatabase"
	ListDatabases      Operation = "ListDatabases"
	QueryDatabases     Operation = "QueryDatabases"
	CreateContainer    Operation = "CreateContainer"
	ReadContainer      Operation = "ReadContainer" // GET and HEAD
	ReplaceContainer   Operation = "ReplaceContainer"
	DeleteContainer    Operation = "DeleteContainer"
	ListContainers     Operation = "ListContainers"
	QueryContainers    Operation = "QueryContainers"
	ReadRanges         Operation = "ReadRanges" // the partition key range feed
	CreateItem         Operation = "CreateItem"
	ReadItem           Operation = "ReadItem"
	UpsertItem         Operation = "UpsertItem"
	ReplaceItem        Operation = "ReplaceItem"
	PatchItem          Operation = "PatchItem"
	DeleteItem         Operation = "DeleteItem"
	Batch              Operation = "Batch" // transactional and bulk
	QueryItems         Operation = "QueryItems"
	QueryPlan          Operation = "QueryPlan"
	ListItems          Operation = "ListItems"
	ChangeFeed         Operation = "ChangeFeed"
	ExecuteSproc       Operation = "ExecuteSproc"
	DeletePartitionKey Operation = "DeletePartitionKey"
	CreateScript       Operation = "CreateScript"
	ReadScript         Operation = "ReadScript"
	ReplaceScript      Operation = "ReplaceScript"
	DeleteScript       Operation = "DeleteScript"
	ListScripts        Operation = "ListScripts"
	ListConflicts      Operation = "ListConflicts"
	ReadOffer          Operation = "ReadOffer"
	ReplaceOffer       Operation = "ReplaceOffer"
	ListOffers         Operation = "ListOffers" // read feed and query
	Unknown            Operation = "Unknown"    // a path or method the account does not serve
)

var (
	dataReads  = []Operation{ReadItem, QueryItems, QueryPlan, ListItems, ChangeFeed}
	dataWrites = []Operation{CreateItem, UpsertItem, ReplaceItem, PatchItem, DeleteItem, Batch, ExecuteSproc, DeletePartitionKey}
	metaWrites = []Operation{CreateDatabase, DeleteDatabase, CreateContainer, ReplaceContainer, DeleteContainer,
		CreateScript, ReplaceScript, DeleteScript, ReplaceOffer}
)

// DataReads lists the operations that read items, for Match.Operations.
func DataReads() []Operation { return slices.Clone(dataReads) }

// DataWrites lists the operations that change items, for Match.Operations.
func DataWrites() []Operation { return slices.Clone(dataWrites) }

// Data lists every operation on items: DataReads and DataWrites.
func Data() []Operation { return slices.Concat(dataReads, dataWrites) }

func (o Operation) isDataRead() bool  { return slices.Contains(dataReads, o) }
func (o Operation) isDataWrite() bool { return slices.Contains(dataWrites, o) }
func (o Operation) isMetaWrite() bool { return slices.Contains(metaWrites, o) }

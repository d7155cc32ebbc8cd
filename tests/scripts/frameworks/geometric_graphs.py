"""PyTorch Geometric: a graph network on batches of sixteen graphs, each of seven to twelve nodes."""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

torch.set_num_threads(1)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = GCNConv(6, 32), GCNConv(32, 32), nn.Linear(32, 3)

    def forward(self, graphs):
        nodes = self.first(graphs.x, graphs.edge_index).relu()
        nodes = self.second(nodes, graphs.edge_index).relu()
        return self.head(global_mean_pool(nodes, graphs.batch))


def make_graph(number):
    nodes = 7 + number % 6
    return Data(
        x=torch.randn(nodes, 6), edge_index=torch.randint(0, nodes, (2, 3 * nodes)), y=torch.tensor([number % 3])
    )


loader = DataLoader([make_graph(number) for number in range(320)], batch_size=16, shuffle=True)
model = GraphNetwork().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    for graphs in loader:
        graphs = graphs.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(graphs), graphs.y)
        loss.backward()
        optimizer.step()
